package reader

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// Range is a part of a data set in storage order: shards [From, To). The zero value is all of it,
// and so is To 0: up to the last shard.
type Range struct{ From, To int }

// Frame is a decoded frame: a block of ordinary size, or up to 16 MiB of a larger one.
type Frame struct {
	// Shard is the shard's number, Block the block's in the shard, Row the frame's in Dataset.Rows.
	Shard, Block, Row int
	// Offset is where the Stored bytes of the frame begin in the object. BlockOffset is where its
	// decoded bytes begin in the block: 0 in the first frame.
	Offset, BlockOffset int64
	Stored              int
	// FirstSample is the number of the block's first sample in the data set. Samples is how many the
	// block has, in its first frame; 0 in the frames that continue it.
	FirstSample uint64
	Samples     int
	// Removed is how many of these samples were removed. Decoded does not have them.
	Removed int
	// Last reports that the block ends with this frame.
	Last bool
	// Decoded are tar members, valid until the next step of the iteration. Do not write to them. In a
	// block with removed samples, BlockOffset counts their bytes too. The members of a stacked shard
	// are made from its rows.
	Decoded []byte
}

func frameOf(r *fetch.Result) Frame {
	return Frame{
		Shard: r.Shard.Number, Block: r.Block, Row: r.Row, Offset: r.Offset, BlockOffset: r.BlockOffset,
		Stored:      r.Stored,
		FirstSample: r.First, Samples: r.Samples, Last: r.Last, Decoded: r.Decoded,
	}
}

// Frames reads the frames of a range of shards in storage order: fetched, compared with their
// CRC-32C, decoded and the names of members checked on Options.Workers goroutines, within
// Options.Memory. Nothing is read before the loop begins. When it ends, by a break too, all
// goroutines have ended. An error comes in the place of the frame it belongs to, with shard, block
// and offset, and is the last value of the loop. Every range over the result reads anew. If samples
// are delivered with layers, or with some of their fields, the error wraps ErrFields.
func (d *Dataset) Frames(ctx context.Context, r Range) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if err := d.ownOnly("frames"); err != nil {
			yield(Frame{}, err)
			return
		}
		var rows unstacked
		var tar cutter
		for r, err := range d.run(ctx, pipelineOptions{check: checkNames}, d.storageOrder(ctx, r, false)) {
			var f Frame
			switch {
			case err != nil:
			case r.Shard.Layout != nil:
				f, err = rows.frame(r)
			default:
				f, err = tar.frame(r)
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// unstacked makes tar members from the rows of stacked blocks.
type unstacked struct {
	rows block.Rows
	out  []byte
}

// frame returns a block as an ordinary shard holds it, without removed samples. Its bytes are valid
// until the next call.
func (u *unstacked) frame(r *fetch.Result) (Frame, error) {
	f := frameOf(r)
	if err := u.rows.Open(r.Decoded, r.Samples, r.Kind()); err != nil {
		return Frame{}, placed(r, window.InBlock(err))
	}
	u.out = u.out[:0]
	for i := range r.Samples {
		if r.Shard.Gone(r.First + uint64(i)) {
			f.Removed++
			continue
		}
		u.out = u.rows.AppendTar(u.out, i)
	}
	f.Decoded = u.out
	return f, nil
}

// cutter takes the members of removed samples out of the decoded blocks of tar shards, whose frames
// it gets in order. It checks the names of members that checkNames has not seen.
type cutter struct {
	members
	out []byte
}

// frame returns a frame. Its bytes are valid until the next call.
func (c *cutter) frame(r *fetch.Result) (Frame, error) {
	f, gone := frameOf(r), len(r.Shard.GoneOf(r.First, r.Shard.SamplesOf(r.Row)))
	if r.Samples > 0 {
		f.Removed = gone
		if gone == 0 && r.Last {
			return f, nil
		}
		c.block(r, gone > 0)
	}
	c.out = c.out[:0]
	place := func(err error) error { return placed(r, err) }
	err := c.write(r.Decoded, place)
	if err == nil && r.Last {
		err = c.end(place)
	}
	if err != nil {
		return Frame{}, err
	}
	if gone > 0 {
		f.Decoded = c.out
	}
	return f, nil
}

// block begins a block. With cut it keeps the bytes of the samples that were not removed.
func (c *cutter) block(r *fetch.Result, cut bool) {
	c.members = members{want: -1, foreign: r.Shard.Foreign, head: c.head[:0], key: c.key[:0]}
	if !cut {
		return
	}
	shard, first := r.Shard, r.First // the walk needs these after r, which is valid for this frame only
	keep := func(p []byte) error {
		c.out = append(c.out, p...)
		return nil
	}
	c.visitor = visitor{header: keep, payload: keep, padding: keep}
	c.shows = func(sample int) bool { return !shard.Gone(first + uint64(sample)) }
}

// checkNames checks the names of the members of a whole block.
func checkNames(f *fetch.Result) error {
	if f.Samples == 0 || !f.Last || f.Shard.Layout != nil {
		return nil
	}
	walk := tarblock.Walker{Buf: f.Decoded, Foreign: f.Shard.Foreign}
	var m tarblock.Member
	for {
		if ok, err := walk.Next(&m); err != nil || !ok {
			return placed(f, window.InBlock(err))
		}
	}
}

// filled is the range with its defaults.
func (d *Dataset) filled(r Range) (Range, error) {
	if r.To == 0 {
		r.To = d.NumShards()
	}
	if r.From < 0 || r.From > r.To || r.To > d.NumShards() {
		return r, fmt.Errorf("range of shards %d to %d of %d", r.From, r.To, d.NumShards())
	}
	return r, nil
}

// storageOrder is the order of jobs that reads a range of shards from front to end. whole keeps
// blocks in one piece.
func (d *Dataset) storageOrder(ctx context.Context, r Range, whole bool) iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		r, err := d.filled(r)
		if err != nil {
			yield(fetch.Job{}, err)
			return
		}
		for n := r.From; n < r.To; n++ {
			s, err := d.catalog.Shard(ctx, n)
			if err != nil {
				yield(fetch.Job{}, err)
				return
			}
			if !s.Jobs(whole, yield) {
				return
			}
		}
	}
}

// pipelineOptions are how run differs between its callers.
type pipelineOptions struct {
	keepGoing bool                      // go on after an error
	requests  int                       // in flight; 0: what the store allows by itself
	memory    int64                     // 0: Options.Memory
	check     func(*fetch.Result) error // runs on the workers, for every frame that is right so far
}

// run fetches jobs within the data set's options. A result comes with its error, after which run
// goes on only with keepGoing. An error without a result is of the jobs, or of ctx, and ends them.
func (d *Dataset) run(ctx context.Context, o pipelineOptions,
	jobs iter.Seq2[fetch.Job, error]) iter.Seq2[*fetch.Result, error] {
	return func(yield func(*fetch.Result, error) bool) {
		ctx, end := d.catalog.Scope(ctx)
		defer end()
		p := &fetch.Pipeline{
			Source: d.source, Pool: &d.pool, Workers: d.opts.Workers, Memory: cmp.Or(o.memory, d.opts.Memory),
			KeepGoing: o.keepGoing, Check: o.check, Requests: o.requests,
		}
		for u, err := range p.Run(ctx, jobs) {
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range u.Results {
				if r := &u.Results[i]; !yield(r, r.Err) || r.Err != nil && !o.keepGoing {
					return
				}
			}
		}
	}
}
