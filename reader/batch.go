package reader

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
)

// Batch is this rank's part of a global batch. Samples are views into blocks: valid until Release,
// or until the next call of Next when StreamOptions.Hold is 0. Clone keeps one longer. The blocks
// are in memory of the stream, where they were checked: a file that changes meanwhile does not
// change them. It is for one goroutine at a time.
type Batch struct {
	// Samples are in the order's order. Skipped ones are missing. Release takes them away.
	Samples []Sample
	// Epoch and Position are where the global batch begins: Position counts samples of the epoch over all ranks.
	Epoch, Position uint64
	// NextEpoch and NextPosition are where the next one begins.
	NextEpoch, NextPosition uint64
	// Global is the size of the global batch, First the place of this rank's first sample in it.
	Global, First int
	// Holes is how many samples of this rank's part were skipped.
	Holes int

	s       *Stream
	draft   *draft // nil once released
	views   *views
	skipped ledgerMark // behind the batch
}

// views is the memory of a batch that was assembled: used again once it is released.
type views struct {
	samples []Sample
	fields  []format.FieldView
	places  []int32  // of samples in this rank's part, from the first hole on
	copies  [][]byte // what samples are in, when they are not in pieces
	chunk   []byte   // the last of them, as far as it is used
}

// Release gives the batch's memory back. Samples must not be used afterwards. Releasing twice does nothing. It may be called
// from any goroutine.
func (b *Batch) Release() { b.s.release(b) }

// Place is where sample i of Samples stands in this rank's part: i, and further back behind holes.
func (b *Batch) Place(i int) int {
	if len(b.views.places) > 0 {
		return int(b.views.places[i])
	}
	return i
}

// Clone returns samples that stay valid.
func (b *Batch) Clone() []Sample {
	out := make([]Sample, len(b.Samples))
	for i := range b.Samples {
		out[i] = b.Samples[i].Clone()
	}
	return out
}

// Checkpoint is the place behind this batch: a stream opened with it delivers what follows.
func (b *Batch) Checkpoint() (order.Checkpoint, error) {
	return b.s.checkpoint(b.NextEpoch, b.NextPosition, b.skipped)
}

// Clone returns a copy of the sample that stays valid.
func (s *Sample) Clone() Sample {
	out := *s
	out.Fields = append([]format.FieldView(nil), s.Fields...)
	copyBytes(&out, make([]byte, 0, bytesOf(&out)))
	return out
}

// bytesOf is what copyBytes needs.
func bytesOf(s *Sample) int {
	n := len(s.Key)
	for i := range s.Fields {
		n += len(s.Fields[i].Name) + len(s.Fields[i].Data)
	}
	return n
}

// copyBytes moves key, names and data of a sample behind arena, which has room for them. The slice of fields is the sample's.
func copyBytes(s *Sample, arena []byte) []byte {
	keep := func(p []byte) []byte {
		at := len(arena)
		arena = append(arena, p...)
		return arena[at:len(arena):len(arena)]
	}
	s.Key = keep(s.Key)
	for i := range s.Fields {
		f := &s.Fields[i]
		f.Name, f.Data = keep(f.Name), keep(f.Data)
	}
	return arena
}
