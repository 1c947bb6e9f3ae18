package reader

import (
	"cmp"
	"context"
	"errors"
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
	// With layers it is called for each data set that is read, at the same time, and must answer
	// alike.
	Take func(ctx context.Context, b *Block) (bool, error)

	memory int64 // 0: Options.Memory
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

	walk   sampleWalk
	own    *part          // where it is not nil, samples have fields of several data sets, or some
	layers []*layerBlocks // of the other data sets
	sample Sample         // with these fields
	fields []format.FieldView
}

// Next returns the block's next sample that was not removed, or io.EOF after the last one. It is
// valid until the next call and the next step of the iteration; no call allocates. An error sticks;
// it has shard, block and offset.
func (b *Block) Next() (*Sample, error) {
	switch {
	case b.Large:
		return nil, fmt.Errorf("%w: block %d of shard %d is large and was not read: read its fields one by one",
			format.ErrTooLarge, b.Number, b.Shard)
	case b.walk.err != nil:
		return nil, b.walk.err
	case b.own == nil && b.walk.next():
		return &b.walk.sample, nil
	case b.own != nil && b.walk.next():
		return b.merged()
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
			yield(nil, fmt.Errorf("samples %d to %d of %d", o.From, o.To, d.tables.Samples))
			return
		}
		if d.plain() {
			d.blocks(ctx, o, yield)
		} else {
			d.blocksOf(ctx, o, yield)
		}
	}
}

// blocks is Blocks of the data set itself.
func (d *Dataset) blocks(ctx context.Context, o BlockOptions, yield func(*Block, error) bool) {
	o.memory = cmp.Or(o.memory, d.opts.Memory)
	var b Block
	for w := (blockOrder{d: d, o: o, at: o.From}); w.at < o.To; {
		w.large = nil
		for r, err := range d.run(ctx, pipelineOptions{keepGoing: true, memory: o.memory}, w.jobs(ctx)) {
			if r == nil {
				yield(nil, err)
				return
			}
			if !b.yield(r, yield) {
				return
			}
		}
		if w.large != nil && !yield(w.large, nil) {
			return
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
		b := Block{Shard: j.Shard.Number, Number: block.Block, First: block.First,
			Samples: int(rows[block.From].Samples)}
		b.Large = block.To-block.From > 1 && int64(block.Plan().Size) > w.o.memory/4
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

// blocksOf is Blocks of a data set with layers, or of some fields. It reads the blocks of each data
// set in step with the data set's own, which has the keys.
func (d *Dataset) blocksOf(ctx context.Context, o BlockOptions, yield func(*Block, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var layers []*layerBlocks
	o.memory = d.opts.Memory / int64(len(d.parts))
	for i := range d.parts[1:] {
		p := &d.parts[1+i]
		if to := min(o.To, p.tables.Samples); o.From < to {
			l := &layerBlocks{of: p, to: to}
			opts := o
			opts.To = to
			l.pull, l.stop = iter.Pull2(func(yield func(*Block, error) bool) { p.blocks(ctx, opts, yield) })
			defer l.stop()
			layers = append(layers, l)
		}
	}
	defer cancel() // before the others stop
	d.blocks(ctx, o, func(b *Block, err error) bool {
		if b != nil {
			b.own, b.layers = &d.parts[0], layers
			for _, l := range layers {
				if failed := l.step(b); failed != nil && err == nil {
					err = failed
				}
			}
			if err == nil && b.Large && len(layers) > 0 {
				err = fmt.Errorf("%w: block %d of shard %d is large, and has fields of several data sets: raise the memory", format.ErrTooLarge, b.Number, b.Shard)
			}
		}
		return yield(b, err) && (err == nil || Damaged(err))
	})
}

// layerBlocks is the blocks of a layer that Blocks reads.
type layerBlocks struct {
	of   *part
	to   uint64 // the layer has something of samples below this number
	pull func() (*Block, error, bool)
	stop func()
	at   *Block  // nil where the layer has nothing of the block at hand
	next *Sample // that was found, and may be of a sample further on
	err  error   // other than damage: it ends the iteration
}

// step turns to the layer's block for a block of the data set.
func (l *layerBlocks) step(b *Block) error {
	l.at, l.next = nil, nil
	if b.First >= l.to || l.err != nil {
		return l.err
	}
	at, err, ok := l.pull()
	switch {
	case err == nil && (!ok || at.First != b.First || at.Samples != b.Samples):
		err = fmt.Errorf("%w: its blocks differ from the blocks of the data set from sample %d on: make the layer again", format.ErrMismatch, b.First)
		l.err = l.of.failed(err)
	case err == nil && at.Large:
		_, err = at.Next()
	case err != nil && !Damaged(err):
		l.err = l.of.failed(err)
	case err == nil:
		l.at = at
	}
	return l.of.failed(err)
}

// fields returns what the layer has of a sample.
func (l *layerBlocks) fields(key []byte, number uint64) ([]format.FieldView, error) {
	for l.at != nil && (l.next == nil || l.next.Number < number) {
		var err error
		if l.next, err = l.at.Next(); errors.Is(err, io.EOF) {
			l.at = nil
		} else if err != nil {
			return nil, l.of.failed(err)
		}
	}
	if l.at == nil || l.next.Number != number {
		return nil, nil
	}
	if err := l.of.pick.Same(key, l.next.Key, number); err != nil {
		return nil, l.of.failed(err)
	}
	return l.of.pick.Of(l.next.Fields, number), nil
}

// merged returns the sample at hand with the fields that are delivered, of all data sets.
func (b *Block) merged() (*Sample, error) {
	of := &b.walk.sample
	b.sample = *of
	fields := of.Fields
	if b.own.pick != nil {
		fields = b.own.pick.Of(fields, of.Number)
	}
	b.fields = append(b.fields[:0], fields...)
	for _, l := range b.layers {
		more, err := l.fields(of.Key, of.Number)
		if err != nil {
			b.walk.err = err
			return nil, err
		}
		b.fields = l.of.pick.Merge(b.fields, more)
	}
	b.sample.Fields = b.fields
	return &b.sample, nil
}
