package main

import (
	"context"
	"encoding/json"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// unitLine is the line of a unit.
type unitLine struct {
	Source   string `json:"source,omitempty"` // of a mix
	Epoch    uint64 `json:"epoch"`            // of the source
	Position uint64 `json:"position"`         // in units; of a mix, over all its epochs
	// Tokens is the sum of the lengths, Longest the largest of them.
	Tokens  uint64     `json:"tokens"`
	Longest uint32     `json:"longest"`
	Items   []itemLine `json:"items"`
	Padding bool       `json:"padding,omitempty"`
}

// itemLine is a sample in a unit, or a piece of one.
type itemLine struct {
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"`
	Key      string `json:"key,omitempty"`
	KeyBytes []byte `json:"key_base64,omitempty"`
	Offset   uint32 `json:"offset"`
	Length   uint32 `json:"length"`
}

// add adds an item.
func (l *unitLine) add(it itemLine, cut *order.Cut) {
	it.Offset, it.Length = cut.Offset, cut.Length
	l.Tokens, l.Longest = l.Tokens+uint64(cut.Length), max(l.Longest, cut.Length)
	l.Items = append(l.Items, it)
}

// units writes the lines of a batch of units. whole is false when the limit cut it.
func (o *batchWriter) units(ctx context.Context, b *reader.Batch) (whole bool, err error) {
	for i, unit := 0, uint32(0); int(unit) < b.Units; unit++ {
		if o.full {
			return false, nil
		}
		l := unitLine{Items: []itemLine{}}
		for ; i < len(b.Samples) && b.Cut(i).Unit == unit; i++ {
			smp, cut := &b.Samples[i], b.Cut(i)
			of := smp.SourceNumber()
			it := itemLine{Number: smp.Number, Key: string(smp.Key), KeyBytes: keyBytes(smp.Key)}
			if it.Shard, it.Block, err = o.places[of].find(ctx, o.in.run.Sources[of], it.Number); err != nil {
				return false, err
			}
			l.Padding = smp.Padding
			l.add(it, &cut)
		}
		of, epoch := b.UnitSource(unit)
		at, err := o.in.run.Entry(ctx, reader.Place{Epoch: b.Epoch, Position: b.Position + uint64(b.First) + uint64(unit)}, &order.Ref{Epoch: uint32(epoch), Padding: l.Padding})
		if err != nil {
			return false, err
		}
		l.Source, l.Epoch, l.Position = o.in.run.Names[of], at.Epoch, at.Position
		text, err := json.Marshal(l)
		if err != nil {
			return false, err
		}
		if _, err := o.w.Write(append(text, '\n')); err != nil {
			return false, err
		}
		if o.left > 0 {
			o.left--
			o.full = o.left == 0
		}
	}
	return true, nil
}
