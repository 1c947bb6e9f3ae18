package reader

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Samples reads the samples of a range of shards in storage order, as Frames does, without removed
// ones. A sample is valid until the next step of the loop; no step allocates. Samples of a block
// are in memory together: a block of several frames that is larger than Options.Memory is an error
// that wraps format.ErrTooLarge; Field and WriteTar read those.
func (d *Dataset) Samples(ctx context.Context, r Range) iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		if !d.plain() {
			d.samplesOf(ctx, r, yield)
			return
		}
		var w sampleWalk
		for f, err := range d.run(ctx, pipelineOptions{}, d.storageOrder(ctx, r, true)) {
			if err == nil {
				w.begin(f)
				for w.next() {
					if !yield(&w.sample, nil) {
						return
					}
				}
				err = w.err
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// samplesOf is Samples of a data set with layers, or of some fields.
func (d *Dataset) samplesOf(ctx context.Context, r Range, yield func(*Sample, error) bool) {
	o := BlockOptions{To: d.tables.Samples}
	r, err := d.filled(r)
	if err == nil && r.From == r.To {
		return
	}
	if err == nil {
		o.From, err = d.FirstSample(ctx, r.From)
	}
	if err == nil && r.To < d.NumShards() {
		o.To, err = d.FirstSample(ctx, r.To)
	}
	if err != nil {
		yield(nil, err)
		return
	}
	d.blocksOf(ctx, o, func(b *Block, err error) bool {
		for err == nil {
			var s *Sample
			if s, err = b.Next(); err == nil && !yield(s, nil) {
				return false
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
			return false
		}
		return true
	})
}
