package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/explain"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/reader/unitplan"
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

// unitPlace turns the place of a unit in a batch into its epoch and position: a batch that wraps
// has units of several epochs.
func unitPlace(ctx context.Context, u *unitplan.Order, epoch, position uint64, padding bool) (uint64, uint64, error) {
	if padding {
		return epoch, position, nil
	}
	for {
		p, err := u.Plan(ctx, epoch)
		if err != nil || position < p.Units() {
			return epoch, position, err
		}
		epoch, position = epoch+1, position-p.Units()
	}
}

// unitPrinter prints units.
type unitPrinter struct {
	ctx     context.Context
	ds      *reader.Dataset
	units   *unitplan.Order
	out     *json.Encoder
	place   placer
	keys    bool
	indexes keyReader
	line    unitLine
}

// printUnits prints the units of one rank in the order they are delivered, or with --step those of
// one step.
func printUnits(cmd *cobra.Command, w io.Writer, ds *reader.Dataset, f *orderFlags, keys bool, step uint64) error {
	ctx := cmd.Context()
	u, err := f.unitOrder(ctx, ds, cmd.ErrOrStderr(), cmd.OutOrStdout())
	if err != nil {
		return err
	}
	defer u.Close()
	epoch, position := f.opt.Epoch, uint64(0)
	if cp := f.opt.Checkpoint; cp != nil {
		epoch, position = cp.Epoch, cp.Position
	}
	if f.changed("step") {
		at, err := explain.UnitStep(ctx, u, f.opt.GlobalBatch, step)
		if err != nil {
			return usage(err)
		}
		epoch, position = at.Epoch, at.Position
	}
	cur, err := u.Seek(epoch, position, u.Plans(ctx))
	if err != nil {
		return f.explainUnits(err)
	}
	if f.opt.Epochs > 0 && !f.changed("step") {
		cur.Until(f.opt.End())
	}
	split := order.Split{GlobalBatch: f.opt.GlobalBatch, Rank: f.opt.Rank, World: f.opt.World}
	p := unitPrinter{ctx: ctx, ds: ds, units: u, out: json.NewEncoder(w), keys: keys, indexes: keyReader{ds: ds, at: -1}}
	left := f.limit
	var refs []order.Ref
	for {
		var b order.Batch
		if refs, b, err = cur.NextBatch(refs[:0], split); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return usage(err)
		}
		for i := 0; i < len(refs); {
			if i, err = p.print(refs, &b, i); err != nil {
				return err
			}
			if left > 0 {
				if left--; left == 0 {
					return nil
				}
			}
		}
		if f.changed("step") {
			return nil
		}
	}
}

// printUnits prints the units of a rank's part of a batch of a mix. more is false once the limit is
// reached.
func (p *mixPrinter) printUnits(ctx context.Context, m *mix.Mix, refs []order.Ref, b *order.Batch) (more bool, err error) {
	for i := 0; i < len(refs); {
		r := &refs[i]
		ds, place, unit := p.mixed.sets[r.Source], &p.places[r.Source], b.Cuts[i].Unit
		l := &p.unit
		*l = unitLine{
			Source: m.Sources[r.Source].Name, Epoch: uint64(r.Epoch), Position: b.Position + uint64(b.First) + uint64(unit),
			Items: slices.Grow(l.Items[:0], 1), Padding: r.Padding,
		}
		for ; i < len(refs) && b.Cuts[i].Unit == unit; i++ {
			if !l.Padding && ds.Removed(refs[i].Number) {
				continue
			}
			it := itemLine{Number: refs[i].Number}
			if it.Shard, it.Block, err = place.find(ctx, ds, it.Number); err != nil {
				return false, err
			}
			if p.keys && !l.Padding {
				if it.Key, err = p.indexes[r.Source].key(ctx, place.shard, it.Number); err != nil {
					return false, err
				}
				it.KeyBytes = keyBytes(it.Key)
			}
			l.add(it, &b.Cuts[i])
		}
		if err := p.enc.Encode(l); err != nil {
			return false, err
		}
		if p.left > 0 {
			if p.left--; p.left == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// add adds an item.
func (l *unitLine) add(it itemLine, cut *order.Cut) {
	it.Offset, it.Length = cut.Offset, cut.Length
	l.Tokens, l.Longest = l.Tokens+uint64(cut.Length), max(l.Longest, cut.Length)
	l.Items = append(l.Items, it)
}

// print prints the unit whose first reference is number i, and returns the number after its last.
func (p *unitPrinter) print(refs []order.Ref, b *order.Batch, i int) (next int, err error) {
	l, unit := &p.line, b.Cuts[i].Unit
	*l = unitLine{Items: slices.Grow(l.Items[:0], 1), Padding: refs[i].Padding} // no items are a list too
	if l.Epoch, l.Position, err = unitPlace(p.ctx, p.units, b.Epoch, b.Position+uint64(b.First)+uint64(unit), l.Padding); err != nil {
		return i, err
	}
	for ; i < len(refs) && b.Cuts[i].Unit == unit; i++ {
		if !l.Padding && p.ds.Removed(refs[i].Number) {
			continue
		}
		it := itemLine{Number: refs[i].Number}
		if it.Shard, it.Block, err = p.place.find(p.ctx, p.ds, it.Number); err != nil {
			return i, err
		}
		if p.keys && !l.Padding {
			if it.Key, err = p.indexes.key(p.ctx, p.place.shard, it.Number); err != nil {
				return i, err
			}
			it.KeyBytes = keyBytes(it.Key)
		}
		l.add(it, &b.Cuts[i])
	}
	return i, p.out.Encode(l)
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
			if it.Shard, it.Block, err = o.places[of].find(ctx, o.in.sets[of], it.Number); err != nil {
				return false, err
			}
			l.Padding = smp.Padding
			l.add(it, &cut)
		}
		l.Position = b.Position + uint64(b.First) + uint64(unit)
		if p := o.in.Info().Mix; p != nil {
			var of int
			of, l.Epoch = b.UnitSource(unit)
			l.Source = p.Mix().Sources[of].Name
		} else if l.Epoch, l.Position, err = unitPlace(ctx, o.in.Info().UnitOrder, b.Epoch, l.Position, l.Padding); err != nil {
			return false, err
		}
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
