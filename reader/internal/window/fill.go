package window

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Fill fetches the blocks of a piece that was admitted and finds their samples. What is wrong with
// a block becomes that block's error. results is scratch, returned for the next call.
func (p *Piece) Fill(ctx context.Context, w *fetch.Worker, results []fetch.Result) []fetch.Result {
	results = w.Run(ctx, &p.Job, p.Plan, p.Buf, results[:0])
	rest := p.Buf
	for i := 0; i < len(results); {
		j, size := i, 0
		for ok := true; ok; ok = j < len(results) && results[j].Samples == 0 { // the rows of one block
			size += int(p.Job.Shard.Rows[results[j].Row].Decoded)
			j++
		}
		p.add(results[i:j], rest[:size:size])
		rest = rest[size:]
		i = j
	}
	if p.Table.Len() != p.Blocks { // an object that cannot be opened is one result for all
		err := errors.New("reader: no result")
		if len(results) > 0 && results[0].Err != nil {
			err = results[0].Err
		}
		p.Table.Reset()
		for range p.Blocks {
			p.Table.AddError(err)
		}
	}
	return results
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
		p.Table.AddError(format.Place{Shard: head.Shard.Name, Block: head.Block, Offset: head.Offset}.Wrap(InBlock(err)))
	}
}

// InBlock moves an offset in a decoded block from an error's position into its text, because
// positions are those in the object.
func InBlock(err error) error {
	var at *format.PosError
	if !errors.As(err, &at) || at.Offset < 0 {
		return err
	}
	return fmt.Errorf("%w (offset %d in the decoded block)", at.Err, at.Offset)
}
