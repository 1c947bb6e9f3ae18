package reader

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/shardtool/shardtool/internal/tarblock"
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
		Shard: r.Shard.Number, Block: r.Block, Row: r.Row, Offset: r.Offset, BlockOffset: r.BlockOffset, Stored: r.Stored,
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
		var large members // of a block of several frames
		var without cutter
		var rows unstacked
		for u, err := range d.run(ctx, pipelineOptions{check: checkNames}, d.storageOrder(ctx, r, false)) {
			if err != nil {
				yield(Frame{}, err)
				return
			}
			for i := range u.Results {
				r := &u.Results[i]
				if r.Err == nil && r.Shard.Layout != nil {
					f, err := rows.frame(r)
					if !yield(f, err) || err != nil {
						return
					}
					continue
				}
				f, err := frameOf(r), r.Err
				gone := 0
				if err == nil {
					gone = len(r.Shard.GoneOf(r.First, r.Shard.SamplesOf(r.Row)))
				}
				switch {
				case err != nil:
				case gone > 0:
					f.Decoded, err = without.cut(r)
				default:
					err = large.pass(r)
				}
				if err != nil {
					yield(Frame{}, err)
					return
				}
				if r.Samples > 0 {
					f.Removed = gone
				}
				if !yield(f, nil) {
					return
				}
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

// pass checks the names of the members of a block of several frames, which come one by one.
func (m *members) pass(f *fetch.Result) error {
	if f.Samples > 0 && f.Last {
		return nil
	}
	if f.Samples > 0 {
		*m = members{want: -1, foreign: f.Shard.Foreign, head: m.head[:0], key: m.key[:0]}
	}
	place := func(err error) error { return placed(f, err) }
	err := m.write(f.Decoded, place)
	if err == nil && f.Last {
		err = m.end(place)
	}
	return err
}

// storageOrder is the order of jobs that reads a range of shards from front to end. whole keeps
// blocks in one piece.
func (d *Dataset) storageOrder(ctx context.Context, r Range, whole bool) iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		if r.To == 0 {
			r.To = d.NumShards()
		}
		if r.From < 0 || r.From > r.To || r.To > d.NumShards() {
			yield(fetch.Job{}, fmt.Errorf("reader: range of shards %d to %d of %d", r.From, r.To, d.NumShards()))
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

// run fetches jobs within the data set's options.
func (d *Dataset) run(ctx context.Context, o pipelineOptions, jobs iter.Seq2[fetch.Job, error]) iter.Seq2[*fetch.Unit, error] {
	return func(yield func(*fetch.Unit, error) bool) {
		ctx, end := d.catalog.Scope(ctx)
		defer end()
		p := &fetch.Pipeline{
			Source: d.source, Pool: &d.pool, Workers: d.opts.Workers, Memory: cmp.Or(o.memory, d.opts.Memory), KeepGoing: o.keepGoing, Check: o.check, Requests: o.requests,
		}
		p.Run(ctx, jobs)(yield)
	}
}
