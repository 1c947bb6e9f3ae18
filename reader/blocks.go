package reader

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/shardtool/shardtool/format"
)

// BlockOptions say which blocks Dataset.Blocks reads.
type BlockOptions struct {
	// From and To are sample numbers: the blocks that hold samples of [From, To) are read, whole. To 0 means up to the last.
	From, To uint64
	// Take, when not nil, is asked about each block before it is read; those that it leaves out cost nothing. It is called in
	// storage order on another goroutine than the loop's, ahead of it, and not any more once the loop has ended. An error of
	// its own ends the iteration.
	Take func(ctx context.Context, b *Block) (bool, error)
}

// Block is a block that Dataset.Blocks yields. It is for the goroutine that ranges.
type Block struct {
	// Shard is the shard's number, Number the block's in the shard.
	Shard, Number int
	// First is the number of its first sample in the data set, Samples how many it has.
	First   uint64
	Samples int
	// Large: the block would take more than a quarter of Options.Memory, and was not read. The index has its samples' keys and
	// sizes, Field their bytes.
	Large bool

	walk sampleWalk
}

// Next returns the block's next sample, or io.EOF behind the last one. It is valid until the next call and the next step of the
// iteration; no call allocates. The first error is the last thing that Next has to say, with shard, block and offset.
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

// Blocks reads blocks in storage order: fetched, compared with their CRC-32C and decoded on Options.Workers goroutines, within
// Options.Memory. A damaged block is yielded with its error, and the iteration goes on behind it when the loop does; behind any
// other error, which may come without a block, nothing follows. Nothing is read before the loop begins; when it ends, all
// goroutines have ended.
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
			p := d.newPipeline()
			p.keepGoing = true
			for u, err := range p.run(ctx, w.jobs(ctx)) {
				if err != nil {
					yield(nil, err)
					return
				}
				for i := range u.results {
					if !b.yield(&u.results[i], yield) {
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
func (b *Block) yield(r *result, yield func(*Block, error) bool) bool {
	b.Shard, b.Number, b.First, b.Samples, b.Large = r.Shard, r.Block, r.FirstSample, r.Samples, false
	if r.err == nil {
		b.walk.begin(&r.Frame)
	} else {
		b.Samples = int(blockSamples(r.shard.rows, r.Row))
		b.walk.err = r.err
	}
	return yield(b, r.err) && (r.err == nil || isDamage(r.err))
}

// blockOrder is the order of jobs of Blocks. It ends where a large block stands in the way; the next call goes on behind it.
type blockOrder struct {
	d     *Dataset
	o     BlockOptions
	at    uint64 // sample number that the next job begins at
	large *Block
}

// jobs yields jobs up to the next large block, or the end.
func (w *blockOrder) jobs(ctx context.Context) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		for w.at < w.o.To && w.large == nil {
			j, _, err := w.d.locate(ctx, w.at)
			if err == nil {
				w.at = j.first
				err = w.shard(ctx, &j, yield)
			}
			if err == errEnough {
				return
			}
			if err != nil {
				yield(job{}, err)
				return
			}
		}
	}
}

// shard yields the jobs of the rest of a shard, from the block of j on.
func (w *blockOrder) shard(ctx context.Context, j *job, yield func(job, error) bool) error {
	s := j.shard
	run := *j // blocks that are wanted, one behind the other
	run.to = run.from
	flush := func() error {
		if run.to == run.from {
			return nil
		}
		cut := *s
		cut.rows = s.rows[:run.to]
		run.shard = &cut
		for run.from < len(cut.rows) {
			cut.fill(&run, true)
			if !yield(run, nil) {
				return errEnough
			}
			run.next()
		}
		return nil
	}
	for block := *j; block.from < len(s.rows) && w.at < w.o.To; block.next() {
		for block.to = block.from + 1; block.to < len(s.rows) && s.rows[block.to].Samples == 0; block.to++ {
		}
		b := Block{Shard: s.number, Number: block.block, First: block.first, Samples: int(s.rows[block.from].Samples)}
		b.Large = block.to-block.from > 1 && int64(block.plan(w.d.joined()).size) > w.d.opts.Memory/4
		take := true
		if w.o.Take != nil {
			var err error
			if take, err = w.o.Take(ctx, &b); err != nil {
				return err
			}
		}
		w.at = b.First + uint64(b.Samples)
		if take && !b.Large {
			if run.to == run.from {
				run = block
			}
			run.to = block.to
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		run.from, run.to = 0, 0
		if take {
			w.large = &b
			return errEnough
		}
	}
	return flush()
}
