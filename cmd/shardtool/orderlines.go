package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// unitLine is the line of a unit.
type unitLine struct {
	Source   string `json:"source,omitempty"` // of a mix
	Epoch    uint64 `json:"epoch"`            // of the source
	Position uint64 `json:"position"`         // of a mix, over all its epochs
	// Sum of the lengths of its items, and the largest.
	Tokens  uint64 `json:"tokens"`
	Longest uint32 `json:"longest"`

	Items   []itemLine `json:"items"` // pieces of samples
	Padding bool       `json:"padding,omitempty"`
}

// itemLine is a sample in a unit, or a piece of one.
type itemLine struct {
	explain.Stored
	Offset uint32 `json:"offset"`
	Length uint32 `json:"length"`
}

// add adds an item.
func (l *unitLine) add(it itemLine, cut *order.Cut) {
	it.Offset, it.Length = cut.Offset, cut.Length
	l.Tokens, l.Longest = l.Tokens+uint64(cut.Length), max(l.Longest, cut.Length)
	l.Items = append(l.Items, it)
}

// orderLine is a sample in an order, as `cat --json` prints it.
type orderLine struct {
	Source   string `json:"source,omitempty"` // of a mix
	Epoch    uint64 `json:"epoch"`            // of the source
	Position uint64 `json:"position"`         // of a mix, over all its epochs
	explain.Stored
	Padding bool `json:"padding,omitempty"` // the sample only fills a batch
}

// linePrinter prints entries of a run, a JSON object a line.
type linePrinter struct {
	run    *openedRun
	enc    *json.Encoder
	places []placer // by source
	unit   unitLine
	left   int64 // entries to print; 0: no limit
	full   bool  // the limit was reached
}

func newLinePrinter(w io.Writer, run *openedRun, limit int64) linePrinter {
	return linePrinter{run: run, enc: json.NewEncoder(w), places: make([]placer, len(run.Sources)), left: limit}
}

// print prints a line.
func (p *linePrinter) print(line any) error {
	p.count()
	return p.enc.Encode(line)
}

// count counts an entry towards the limit.
func (p *linePrinter) count() {
	if p.left > 0 {
		p.left--
		p.full = p.left == 0
	}
}

// item returns where a sample is.
func (p *linePrinter) item(ctx context.Context, r *order.Ref, key string) (it itemLine, err error) {
	it.Stored = explain.Stored{Number: r.Number, Key: key, KeyBytes: keyBytes(key)}
	it.Shard, it.Block, err = p.places[r.Source].find(ctx, p.run.Sources[r.Source], r.Number)
	return it, err
}

// sample prints a sample. at is as for Run.Entry.
func (p *linePrinter) sample(ctx context.Context, at reader.Place, r *order.Ref, it itemLine) error {
	at, err := p.run.Run.Entry(ctx, at, r)
	if err != nil {
		return err
	}
	return p.print(orderLine{
		Source: p.run.Names[r.Source], Epoch: at.Epoch, Position: at.Position, Stored: it.Stored, Padding: r.Padding,
	})
}

// begin begins a unit, to which add adds items.
func (p *linePrinter) begin() *unitLine {
	p.unit = unitLine{Items: slices.Grow(p.unit.Items[:0], 1)} // no items are a list too
	return &p.unit
}

// end prints the unit begun.
func (p *linePrinter) end(ctx context.Context, at reader.Place, r *order.Ref) error {
	at, err := p.run.Run.Entry(ctx, at, r)
	if err != nil {
		return err
	}
	p.unit.Source, p.unit.Epoch, p.unit.Position, p.unit.Padding = p.run.Names[r.Source], at.Epoch, at.Position,
		r.Padding
	return p.print(&p.unit)
}

// placer finds where samples are, and their keys. It keeps what it read of a shard until a sample
// is in another one.
type placer struct {
	shard int
	name  string
	index *metadata.ShardIndex // nil until a key is asked for
	first uint64               // sample of the shard
}

func (p *placer) find(ctx context.Context, ds *reader.Dataset, number uint64) (name string, block int, err error) {
	at, err := ds.Locate(ctx, number)
	if err != nil {
		return "", 0, err
	}
	if p.name == "" || p.shard != at.Shard {
		info, err := ds.Shard(ctx, at.Shard)
		if err != nil {
			return "", 0, err
		}
		*p = placer{shard: at.Shard, name: info.Name}
	}
	return p.name, at.Block, nil
}

// key returns the key of the sample that was found last.
func (p *placer) key(ctx context.Context, ds *reader.Dataset, number uint64) (key string, err error) {
	if p.index == nil {
		if p.index, p.first, err = indexOf(ctx, ds, p.shard); err != nil {
			return "", err
		}
	}
	return p.index.Keys.At(int(number - p.first)), nil
}

// indexOf returns the index of a shard and the number of its first sample.
func indexOf(ctx context.Context, ds *reader.Dataset, shard int) (*metadata.ShardIndex, uint64, error) {
	ix, err := ds.Index(ctx, shard)
	if err != nil {
		return nil, 0, err
	}
	first, err := ds.FirstSample(ctx, shard)
	return ix, first, err
}

// keyBytes returns the bytes of a key that is not UTF-8, because a JSON string cannot hold it.
func keyBytes[K ~string | ~[]byte](key K) []byte {
	if utf8.Valid([]byte(key)) {
		return nil
	}
	return []byte(key)
}
