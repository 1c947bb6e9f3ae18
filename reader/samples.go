package reader

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Sample is a key and its fields.
type Sample struct {
	// Number is the sample's number in storage order, from 0.
	Number uint64
	Key    []byte
	// Fields are in ascending order of names, as they were packed.
	Fields []format.FieldView
	// Epoch is the epoch of the sample's source, in a stream.
	Epoch uint32
	// Draw counts from 0 the draws of the sample in its block in the epoch; 0 except in a view with
	// weights.
	Draw uint32
	// Padding reports that the sample only fills the batch: it repeats one that the epoch has
	// (order.TailPad).
	Padding bool

	source uint16  // its number in a mix
	of     *origin // in a stream
}

// Source returns the name of the source in a mix; empty for one data set.
func (s *Sample) Source() string {
	if s.of == nil {
		return ""
	}
	return s.of.name
}

// SourceNumber returns the number of the source in the plan of the mix; 0 for one data set.
func (s *Sample) SourceNumber() int { return int(s.source) }

// Seed returns the seed for what a program draws at random for a sample of a stream, see
// order.SampleSeed: it is the same on any rank and after any resume.
func (s *Sample) Seed() uint64 {
	if s.of == nil {
		return 0
	}
	return order.SampleSeed(s.of.plan.Params().Seed, uint64(s.Epoch), s.Number, s.Draw)
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

// sampleWalk goes through the samples of whole blocks.
type sampleWalk struct {
	sample Sample
	err    error

	it    tarblock.SampleIter
	rows  block.Rows // in place of it where the shard is stacked
	buf   []byte     // of the sample made from a row
	block *fetch.Result
	left  int
}

// begin sets the walk to a block's first sample.
func (w *sampleWalk) begin(f *fetch.Result) {
	w.it = tarblock.SampleIter{Walker: tarblock.Walker{Buf: f.Decoded, Foreign: f.Shard.Foreign}, Fields: w.it.Fields}
	w.block, w.left, w.err = f, f.Samples, nil
	w.sample.Number = f.First - 1 // next counts up
	if f.Shard.Layout != nil {
		w.err = w.position(w.rows.Open(f.Decoded, f.Samples, f.Kind()))
	}
}

// next finds the next sample that was not removed.
func (w *sampleWalk) next() bool {
	for w.step() {
		if !w.block.Shard.Gone(w.sample.Number) {
			return true
		}
	}
	return false
}

// step finds the next sample. The block must hold as many as its row states.
func (w *sampleWalk) step() bool {
	if w.block.Shard.Layout != nil {
		return w.row()
	}
	if !w.it.Next() {
		w.fail()
		return false
	}
	if w.left == 0 {
		w.err = w.position(fmt.Errorf("%w: more than the %d samples that its row says", format.ErrCorrupt,
			w.block.Samples))
		return false
	}
	w.left--
	w.sample.Number++
	if w.block.Shard.Foreign {
		sortFields(w.it.Fields)
	}
	w.sample.Key, w.sample.Fields = w.it.Key, w.it.Fields
	return true
}

// row is step in a block of a stacked shard.
func (w *sampleWalk) row() bool {
	if w.err != nil || w.left == 0 {
		return false
	}
	i := w.block.Samples - w.left
	w.sample.Key, w.sample.Fields, w.buf = w.rows.At(i, w.sample.Fields[:0], w.buf[:0])
	w.left--
	w.sample.Number++
	return true
}

func (w *sampleWalk) fail() {
	err := w.it.Err()
	if err == nil && w.left > 0 {
		err = fmt.Errorf("%w: %d samples, its row says %d", format.ErrCorrupt, w.block.Samples-w.left, w.block.Samples)
	}
	w.err = w.position(err)
}

func (w *sampleWalk) position(err error) error {
	if err == nil {
		return nil
	}
	return placed(w.block, window.InBlock(err))
}

// sortFields sorts the fields of a foreign sample, because its members may be in any order.
func sortFields(fields []format.FieldView) {
	less := func(a, b format.FieldView) int { return bytes.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(fields, less) {
		slices.SortFunc(fields, less)
	}
}

// Clone returns a copy of the sample that stays valid.
func (s *Sample) Clone() Sample {
	out := *s
	if s.of != nil {
		out.of = s.of.clones
	}
	out.Fields = append([]format.FieldView(nil), s.Fields...)
	out.Key, _ = assemble.Copy(s.Key, out.Fields, make([]byte, 0, assemble.SizeOf(s.Key, s.Fields)))
	return out
}
