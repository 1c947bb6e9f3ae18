package window

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Filler fetches the blocks of pieces and finds their samples. It is for one goroutine.
type Filler struct {
	fetch.Worker
	Window *Window // of the pieces

	results []fetch.Result
	packer  block.Packer
	piece   *Piece    // at hand
	packed  []packing // of its blocks
	rest    []byte    // of its memory
	take    func(r *fetch.Result, before int)
	room    func(n int) []byte
}

// Fill fills a piece that was admitted. A fault of a block becomes that block's error. Fill reports
// whether the piece was fetched: one that others hold already is not.
func (f *Filler) Fill(ctx context.Context, p *Piece) (fetched bool) {
	if p.Held != nil {
		return p.Held.fill(ctx, f, p)
	}
	f.fill(ctx, p)
	return true
}

func (f *Filler) fill(ctx context.Context, p *Piece) {
	f.Take = nil
	if p.Packed {
		f.packed = append(f.packed[:0], make([]packing, p.Blocks)...)
		if f.take == nil { // made once: they are allocated
			f.take, f.room = f.pack, f.cut
		}
		f.piece, f.Take = p, f.take
		f.begin()
	}
	f.results = f.Run(ctx, &p.Job, p.Plan, p.Buf, f.results[:0])
	if p.Packed {
		f.shrink()
	}
	results, rest := f.results, p.Buf
	for i := 0; i < len(results); {
		j, size := i, 0
		for ok := true; ok; ok = j < len(results) && results[j].Samples == 0 { // the rows of one block
			size += int(p.Job.Shard.Rows[results[j].Row].Decoded)
			j++
		}
		switch {
		case !p.Packed:
			p.add(results[i:j], rest[:size:size])
			rest = rest[size:]
		case results[i].Err != nil:
			p.Table.AddError(results[i].Err)
		default:
			p.addPacked(&results[i], f.packed[results[i].Block-p.Job.Block])
		}
		i = j
	}
	if p.Table.Len() != p.Blocks { // an object that cannot be opened is one result for all
		err := errors.New("no result")
		if len(results) > 0 && results[0].Err != nil {
			err = results[0].Err
		}
		p.Table.Reset()
		for range p.Blocks {
			p.Table.AddError(err)
		}
	}
}

// add adds one block, whose rows lie one after the other.
func (p *Piece) add(rows []fetch.Result, decoded []byte) {
	head := &rows[0]
	for i := range rows {
		if rows[i].Err != nil {
			p.Table.AddError(rows[i].Err)
			return
		}
	}
	if err := p.Table.Add(decoded, head.First, head.Samples, head.Kind()); err != nil {
		p.addError(head, err)
	}
}

// addError adds a block that has a fault.
func (p *Piece) addError(of *fetch.Result, err error) {
	p.Table.AddError(format.Place{Shard: of.Shard.Name, Block: of.Block, Offset: of.Offset}.Wrap(InBlock(err)))
}

// InBlock moves an offset in a decoded block from an error's position into its text, because
// positions count bytes of the object.
func InBlock(err error) error {
	var at *format.PosError
	if !errors.As(err, &at) || at.Offset < 0 {
		return err
	}
	return fmt.Errorf("%w (offset %d in the decoded block)", at.Err, at.Offset)
}
