package reader

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Damaged reports whether an error of this package blames the bytes of the data set, rather than
// the store, the network, or a context that ended. A second read has confirmed the damage.
func Damaged(err error) bool { return fetch.Damaged(err) }

// BlockOptions select the blocks that Dataset.Blocks reads.
type BlockOptions struct {
	// From and To are sample numbers: the blocks that hold samples of [From, To) are read, whole. To 0
	// means up to the last.
	From, To uint64
	// Take, when not nil, is called for each block before it is read. A block that it leaves out costs
	// nothing. It is called in storage order on another goroutine than the loop's, ahead of it, and no
	// more once the loop has ended. Its error ends the iteration.
	Take func(ctx context.Context, b *Block) (bool, error)
}

// Block is a block that Dataset.Blocks yields. It is for the goroutine that ranges.
type Block struct {
	// Shard is the shard's number, Number the block's in the shard.
	Shard, Number int
	// First is the number of its first sample in the data set, Samples how many it has, removed ones
	// included.
	First   uint64
	Samples int
	// Large reports that the block would take more than a quarter of Options.Memory and was not read.
	// The index has its samples' keys and sizes, and Field reads their bytes.
	Large bool

	walk sampleWalk
}

// Next returns the block's next sample that was not removed, or io.EOF after the last one. It is
// valid until the next call and the next step of the iteration; no call allocates. An error sticks;
// it has shard, block and offset.
func (b *Block) Next() (*Sample, error) {
	switch {
	case b.Large:
		return nil, fmt.Errorf("reader: %w: block %d of shard %d is large and was not read: read its fields one by one", format.ErrTooLarge, b.Number, b.Shard)
	case b.walk.err != nil:
		return nil, b.walk.err
	case b.walk.next():
		return &b.walk.sample, nil
	case b.walk.err == nil:
		return nil, io.EOF
	}
	return nil, b.walk.err
}

// Blocks reads blocks in storage order: fetched, compared with their CRC-32C and decoded on
// Options.Workers goroutines, within Options.Memory. A damaged block is yielded with its error, and
// the iteration continues after it if the loop does. Any other error, which may have no block, is
// the last value. Nothing is read before the loop begins; when it ends, all goroutines have ended.
func (d *Dataset) Blocks(ctx context.Context, o BlockOptions) iter.Seq2[*Block, error] {
	return func(yield func(*Block, error) bool) {
		if o.To == 0 {
			o.To = d.tables.Samples
		}
		if o.From > o.To || o.To > d.tables.Samples {
			yield(nil, fmt.Errorf("reader: samples %d to %d of %d", o.From, o.To, d.tables.Samples))
			return
		}
		var b Block
		for w := (blockOrder{d: d, o: o, at: o.From}); w.at < o.To; {
			w.large = nil
			for u, err := range d.run(ctx, pipelineOptions{keepGoing: true}, w.jobs(ctx)) {
				if err != nil {
					yield(nil, err)
					return
				}
				for i := range u.Results {
					if !b.yield(&u.Results[i], yield) {
						return
					}
				}
			}
			if w.large != nil && !yield(w.large, nil) {
				return
			}
		}
	}
}

// yield hands over a block that was read.
func (b *Block) yield(r *fetch.Result, yield func(*Block, error) bool) bool {
	b.Shard, b.Number, b.First, b.Samples, b.Large = r.Shard.Number, r.Block, r.First, r.Samples, false
	if r.Err == nil {
		b.walk.begin(r)
	} else {
		b.Samples = int(r.Shard.SamplesOf(r.Row))
		b.walk.err = r.Err
	}
	return yield(b, r.Err) && (r.Err == nil || fetch.Damaged(r.Err))
}

// blockOrder is the order of jobs of Blocks. It ends before a large block; the
// next call continues after it.
type blockOrder struct {
	d     *Dataset
	o     BlockOptions
	at    uint64 // sample number that the next job begins at
	large *Block
}

// jobs yields jobs up to the next large block, or the end.
func (w *blockOrder) jobs(ctx context.Context) iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		for w.at < w.o.To && w.large == nil {
			j, _, err := w.d.catalog.Locate(ctx, w.at)
			if err == nil {
				w.at = j.First
				err = w.shard(ctx, &j, yield)
			}
			if err == errEnough {
				return
			}
			if err != nil {
				yield(fetch.Job{}, err)
				return
			}
		}
	}
}

// shard yields the jobs of the rest of a shard, from the block of j on.
func (w *blockOrder) shard(ctx context.Context, j *fetch.Job, yield func(fetch.Job, error) bool) error {
	rows := j.Shard.Rows
	run := *j // wanted blocks in a row
	run.To = run.From
	flush := func() error {
		for job := range run.Split() {
			if !yield(job, nil) {
				return errEnough
			}
		}
		return nil
	}
	for block := range j.Rest() {
		if w.at >= w.o.To {
			break
		}
		b := Block{Shard: j.Shard.Number, Number: block.Block, First: block.First, Samples: int(rows[block.From].Samples)}
		b.Large = block.To-block.From > 1 && int64(block.Plan(w.d.source.Joined()).Size) > w.d.opts.Memory/4
		take := true
		if w.o.Take != nil {
			var err error
			if take, err = w.o.Take(ctx, &b); err != nil {
				return err
			}
		}
		w.at = b.First + uint64(b.Samples)
		if take && !b.Large {
			if run.To == run.From {
				run = block
			}
			run.To = block.To
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		run.To = run.From
		if take {
			w.large = &b
			return errEnough
		}
	}
	return flush()
}
