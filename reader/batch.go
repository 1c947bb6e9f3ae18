package reader

import (
	"context"
	"sort"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/order"
)

// Batch is this rank's part of a global batch. Samples are views into blocks. They are valid until
// Release, or until the next call of Next if StreamOptions.Hold is 0. They stay valid after Close
// as long as the program refers to the Sample or its Batch: Key and Data alone keep no memory.
// Sample.Clone makes a copy that stays valid. The blocks are in memory of the stream and were
// checked there, so a file that changes later does not change them. A Batch is for one goroutine at
// a time.
type Batch struct {
	// Samples are in the order of the stream. Skipped and removed ones are missing. Release removes
	// them. It is nil with StreamOptions.Rows.
	Samples []Sample
	// Epoch and Position are where the global batch begins. Position counts the samples of the epoch
	// over all ranks. In a mix, Epoch is the mix's epoch, and Position counts over all its epochs.
	Epoch, Position uint64
	// NextEpoch and NextPosition are where the next global batch begins.
	NextEpoch, NextPosition uint64
	// Global is the size of the global batch, First the place of this rank's first sample in it.
	Global, First int
	// Holes is how many samples of this rank's part were skipped, or were removed from the data set.
	Holes int
	// Of is the number of units of the epoch in which the batch begins, or 0 if positions hold
	// samples.
	Of uint64
	// Units is the number of units of this rank's part if positions hold units, else 0; see
	// Order.Units. With units, Position, NextPosition, Global and First count units, and Samples has
	// the samples of each unit, or their pieces, unit by unit; see Cut.
	Units int

	s       *Stream
	run     *Run           // of the stream when it was planned
	draft   *planner.Draft // nil once released
	memory  *batchMemory
	held    *assemble.Held // the memory below Samples, rows and units; nothing once released
	skipped ledger.Mark    // after the batch
}

// batchMemory is the memory of a batch. It is used again once the batch is released.
type batchMemory struct {
	held    assemble.Held
	samples assemble.Samples[Sample]
	rows    assemble.Rows  // in place of samples, where they have a Layout
	from    []*origin      // of samples, by source
	sources []stats.Source // of a mix: the batch's samples and bytes of each source
}

// newMemory returns memory for a batch of samples, or of rows.
func (s *Stream) newMemory() *batchMemory {
	m := &batchMemory{from: s.from}
	m.samples.Make, m.rows.Layout = m.sample, s.rows
	m.samples.Fields, m.samples.Picks = func(of *Sample) *[]format.FieldView { return &of.Fields }, s.picks
	return m
}

// sample makes a sample.
func (m *batchMemory) sample(to *Sample, r *order.Ref, key []byte, fields []format.FieldView) {
	*to = Sample{
		Number: r.Number, Key: key, Fields: fields, Epoch: r.Epoch, Draw: r.Draw, source: r.Source, Padding: r.Padding,
		of: m.from[r.Source],
	}
}

// form tells whether the batch has samples or rows.
func (m *batchMemory) form() assemble.Form {
	if m.rows.Layout != nil {
		return &m.rows
	}
	return &m.samples
}

// count counts the samples and bytes of each source of a mix.
func (m *batchMemory) count() {
	m.sources = append(m.sources[:0], make([]stats.Source, len(m.from))...)
	size := uint64(0)
	if m.rows.Layout != nil {
		size = uint64(m.rows.Size())
	}
	for i := range m.held.Len() {
		r := m.held.Ref(i)
		if r.Padding {
			continue
		}
		of := &m.sources[r.Source]
		of.Samples++
		of.Bytes += size
		if m.rows.Layout == nil {
			for k := range m.samples.List[i].Fields {
				of.Bytes += uint64(len(m.samples.List[i].Fields[k].Data))
			}
		}
	}
}

// reset prepares for another batch. Idle memory keeps no block alive.
func (m *batchMemory) reset() {
	m.samples.Reset()
	m.rows.Reset()
}

// newBatch returns an empty batch for a draft.
func (s *Stream) newBatch(d *planner.Draft) *Batch {
	b := &Batch{
		Epoch: d.Info.Epoch, Position: d.Info.Position, NextEpoch: d.Info.NextEpoch, NextPosition: d.Info.NextPosition,
		Global: d.Info.Global, First: d.Info.First, Of: d.Info.Of, s: s, run: s.run.Load(), draft: d,
	}
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	if n := len(s.count.idle); n > 0 {
		b.memory, s.count.idle = s.count.idle[n-1], s.count.idle[:n-1]
	} else {
		b.memory = s.newMemory()
	}
	b.held = &b.memory.held
	return b
}

// fill finds what the batch holds and applies the user's function.
func (b *Batch) fill(ctx context.Context, a *assemble.Assembler) error {
	s, m := b.s, b.memory
	if err := a.Fill(ctx, b.draft, b.held, m.form()); err != nil {
		return err
	}
	b.Samples, b.Holes, b.Units, b.skipped = m.samples.List, b.held.Holes, b.held.Units(), s.ledger.Mark()
	if len(s.count.sources) > 0 {
		m.count()
	}
	if s.opts.Map == nil {
		return nil
	}
	s.clock.Map(true)
	defer s.clock.Map(false)
	return mapFunc(s.opts.Map).all(ctx, b.Samples, s.opts.Tuning.Workers)
}

// drop frees what the assembler made, if the consumer does not get it.
func (s *Stream) drop(out assembled) {
	s.clock.Hand(-1)
	if out.Batch == nil {
		return
	}
	s.planner.Drop(out.draft)
	out.memory.reset()
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	if s.count.ended == 0 {
		s.count.idle = append(s.count.idle, out.memory)
	}
}

// Release frees the batch's memory. Its samples must not be used afterwards. Releasing twice does
// nothing. Release may be called from any goroutine.
func (b *Batch) Release() {
	c := &b.s.count
	c.mu.Lock()
	d := b.draft
	b.draft = nil
	c.mu.Unlock()
	if d == nil {
		return
	}
	b.s.planner.Release(d)
	m := b.memory
	b.Samples, b.memory, b.held = nil, nil, new(assemble.Held)
	m.reset()
	c.mu.Lock()
	c.held--
	last := c.ended > 0 && c.held == 0
	if c.ended == 0 {
		c.idle = append(c.idle, m)
	}
	c.mu.Unlock()
	if last {
		b.s.window.Free()
	}
}

// Len returns how many samples, or rows, the batch holds: 0 once it is released.
func (b *Batch) Len() int { return b.held.Len() }

// Place returns the place of sample or row i in this rank's part: i, or more after skipped samples.
func (b *Batch) Place(i int) int { return b.held.Place(i) }

// Entry returns the place in the global batch of sample or unit i of this rank's part, skipped and
// removed ones counted: First+i, unless StreamOptions.Cost is set. It is valid until Release.
func (b *Batch) Entry(i int) int {
	if b.draft == nil {
		return b.First + i
	}
	return b.draft.Info.Entry(i)
}

// MicroBatch returns where micro-batch i of this rank's part begins in Samples or Rows, or in the
// units where Units counts them. It ends where the next one begins: i may be
// StreamOptions.MicroBatches, for the end of the last one. It is valid until Release.
func (b *Batch) MicroBatch(i int) int {
	k := 1
	if b.run.costs != nil {
		k = b.run.costs.micro
	}
	first, bins := b.s.split.Rank*k, b.s.split.World*k
	place := int(order.Share(uint64(b.Global), first+i, bins) - order.Share(uint64(b.Global), first, bins))
	if b.held.Units() > 0 {
		return place
	}
	return sort.Search(b.Len(), func(n int) bool { return b.Place(n) >= place })
}

// Ref returns the number, epoch, draw and source of sample or row i, and whether it is padding.
// Do not write to it. It is valid until Release.
func (b *Batch) Ref(i int) *order.Ref { return b.held.Ref(i) }

// Seed returns the seed of sample or row i, see Sample.Seed.
func (b *Batch) Seed(i int) uint64 {
	r := b.Ref(i)
	return order.SampleSeed(b.s.inputs[r.Source].plan.Params().Seed, uint64(r.Epoch), r.Number, r.Draw)
}

// Cut returns the unit of sample i, and the piece of the sample that is in it. It returns the zero
// value if Units is 0.
func (b *Batch) Cut(i int) order.Cut { return b.held.Cut(i) }

// UnitSource returns the number of the source of a unit of this rank's part, and the unit's epoch
// of that source, even if all its samples were removed. If there is no such unit, the number is -1.
func (b *Batch) UnitSource(unit uint32) (source int, epoch uint64) {
	if r := b.held.Unit(unit); r != nil {
		return int(r.Source), uint64(r.Epoch)
	}
	return -1, 0
}

// SkippedSamples returns how many samples the ledger lists after this batch, as its checkpoint
// counts them.
func (b *Batch) SkippedSamples() uint64 { return b.skipped.Samples }

// Last reports whether no other batch of this size begins in the epoch that this one begins in. The
// last batch of a mix whose sources are used up within an epoch is not known before its end.
func (b *Batch) Last() bool {
	return b.run.last(b.Epoch, b.Of, Place{b.NextEpoch, b.NextPosition}, uint64(b.s.split.GlobalBatch))
}

// Checkpoint returns the place after this batch. A stream opened with it delivers the batches that
// follow.
func (b *Batch) Checkpoint() (Checkpoint, error) {
	return b.run.Checkpoint(Place{b.NextEpoch, b.NextPosition}, b.s.split.GlobalBatch, b.skipped)
}
