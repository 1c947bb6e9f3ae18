package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Sample is a key and its fields.
type Sample struct {
	// Number is the sample's number in storage order, from 0.
	Number uint64
	Key    []byte
	// Fields are in ascending order of names, as they were packed.
	Fields []format.FieldView
	// Padding: the sample only fills the batch (order.TailPad) and has neither key nor fields.
	Padding bool
}

// Field returns the data of a field, or nil and false.
func (s *Sample) Field(name string) ([]byte, bool) {
	for i := range s.Fields {
		if string(s.Fields[i].Name) == name {
			return s.Fields[i].Data, true
		}
	}
	return nil, false
}

// Samples reads the samples of a range of shards in storage order, as Frames does. A sample is valid until the next step
// of the loop; no step allocates. Samples of a block are in memory together: a block of several frames that is larger
// than Options.Memory is an error that wraps format.ErrTooLarge; Field and WriteTar read those.
func (d *Dataset) Samples(ctx context.Context, r Range) iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		p := d.newPipeline()
		var w sampleWalk
		for u, err := range p.run(ctx, d.storageOrder(ctx, r, true)) {
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range u.results {
				f := &u.results[i]
				if f.err != nil {
					yield(nil, f.err)
					return
				}
				w.begin(&f.Frame)
				for w.next() {
					if !yield(&w.sample, nil) {
						return
					}
				}
				if w.err != nil {
					yield(nil, w.err)
					return
				}
			}
		}
	}
}

// sampleWalk goes through the samples of whole blocks.
type sampleWalk struct {
	sample Sample
	err    error

	it    format.SampleIter
	frame *Frame
	left  int
}

// begin sets the walk to a block's first sample.
func (w *sampleWalk) begin(f *Frame) {
	w.it = format.SampleIter{Walker: format.Walker{Buf: f.Decoded, Foreign: f.shard.Foreign}, Fields: w.it.Fields}
	w.frame, w.left, w.err = f, f.Samples, nil
	w.sample.Number = f.FirstSample - 1 // next counts up
}

// next finds the next sample. The block must hold as many as its row says, no more and no fewer.
func (w *sampleWalk) next() bool {
	if !w.it.Next() {
		w.fail()
		return false
	}
	if w.left == 0 {
		w.err = w.position(fmt.Errorf("%w: more than the %d samples that its row says", format.ErrCorrupt, w.frame.Samples))
		return false
	}
	w.left--
	w.sample.Number++
	if w.frame.shard.Foreign {
		sortFields(w.it.Fields)
	}
	w.sample.Key, w.sample.Fields = w.it.Key, w.it.Fields
	return true
}

func (w *sampleWalk) fail() {
	err := w.it.Err()
	if err == nil && w.left > 0 {
		err = fmt.Errorf("%w: %d samples, its row says %d", format.ErrCorrupt, w.frame.Samples-w.left, w.frame.Samples)
	}
	w.err = w.position(err)
}

func (w *sampleWalk) position(err error) error {
	if err == nil {
		return nil
	}
	return format.Position(inBlock(err), w.frame.shard.Name, w.frame.Block, w.frame.Offset, "")
}

// inBlock moves an offset in a decoded block from an error's position into its words: positions are those in the object.
func inBlock(err error) error {
	var at *format.PosError
	if !errors.As(err, &at) || at.Offset < 0 {
		return err
	}
	return fmt.Errorf("%w (offset %d in the decoded block)", at.Err, at.Offset)
}

// sortFields puts the fields of a foreign sample in order: its members may stand in any.
func sortFields(fields []format.FieldView) {
	less := func(a, b format.FieldView) int { return bytes.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(fields, less) {
		slices.SortFunc(fields, less)
	}
}
