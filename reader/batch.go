package reader

import (
	"context"
	"sort"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/ledger"
	"github.com/shardtool/shardtool/internal/stats"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Batch is this rank's part of a global batch. Samples are views into blocks: they are valid until
// Release, or until the next call of Next when StreamOptions.Hold is 0. After Close they still are,
// as long as the program refers to the Sample or its Batch: Key and Data alone keep no memory.
// Sample.Clone makes a copy that stays valid. The blocks are in memory of the stream, where they
// were checked: a file that changes meanwhile does not change them. A Batch is for one goroutine at
// a time.
type Batch struct {
	// Samples are in the order of the stream. Skipped and removed ones are missing. Release removes
	// them. It is nil with StreamOptions.Rows.
	Samples []Sample
	// Epoch and Position are where the global batch begins. Position counts the samples of the epoch
	// over all ranks. Those of a mix are its own: its position counts over all epochs.
	Epoch, Position uint64
	// NextEpoch and NextPosition are where the next one begins.
	NextEpoch, NextPosition uint64
	// Global is the size of the global batch, First the place of this rank's first sample in it.
	Global, First int
	// Holes is how many samples of this rank's part were skipped, or were removed from the data set.
	Holes int
	// Of is how many units the epoch has that the batch begins in; 0 where positions hold samples.
	Of uint64
	// Units is how many units this rank's part has, where positions hold units, see Order.Units: then
	// Position, NextPosition, Global and First count units, and Samples has the samples of each unit,
	// or their pieces, unit by unit; see Cut. Elsewhere it is 0.
	Units int

	s       *Stream
	draft   *planner.Draft // nil once released
	memory  *batchMemory
	counts  assemble.Counts
	skipped ledger.Mark // after the batch
}

// batchMemory is the memory of a batch. It is used again once the batch is released.
type batchMemory struct {
	samples []Sample
	from    []*origin
	sources []stats.Source // of a mix: what the batch has of each
	places  []int32        // of samples in this rank's part; empty while no sample was skipped
	rows    assemble.Rows  // in place of samples, see Read.Rows
	assemble.Memory
}

// origin is where a sample of a stream is from. It keeps the memory of the sample, also after Close.
type origin struct {
	*input
	memory *window.Window
	clones *origin // of copies, which need no memory of the stream
}

// origins are those of a stream, by source.
func origins(inputs []*input, w *window.Window) []*origin {
	from := make([]*origin, len(inputs))
	for i, in := range inputs {
		clones := &origin{input: in}
		clones.clones = clones
		from[i] = &origin{in, w, clones}
	}
	return from
}

// newBatch returns an empty batch for a draft.
func (s *Stream) newBatch(d *planner.Draft) *Batch {
	b := &Batch{
		Epoch: d.Info.Epoch, Position: d.Info.Position, NextEpoch: d.Info.NextEpoch, NextPosition: d.Info.NextPosition,
		Global: d.Info.Global, First: d.Info.First, Of: d.Info.Of, s: s, draft: d,
	}
	if n := len(d.Cuts); n > 0 {
		b.Units = int(d.Cuts[n-1].Unit) + 1
	}
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	if n := len(s.count.idle); n > 0 {
		b.memory, s.count.idle = s.count.idle[n-1], s.count.idle[:n-1]
	} else {
		b.memory = &batchMemory{from: s.from}
	}
	return b
}

// fill finds the samples of the batch and applies the user's function.
func (b *Batch) fill(ctx context.Context, a *assemble.Assembler) (err error) {
	s := b.s
	if s.rows != nil {
		return b.fillRows(ctx, a)
	}
	if b.counts, err = a.Fill(ctx, b.draft, &b.memory.Memory, b.memory); err != nil {
		return err
	}
	b.Samples, b.Holes, b.skipped = b.memory.samples, b.counts.Skipped, s.ledger.Mark()
	if len(s.count.sources) > 0 {
		b.memory.count()
	}
	if s.opts.Map == nil {
		return nil
	}
	s.clock.Map(true)
	defer s.clock.Map(false)
	return mapFunc(s.opts.Map).all(ctx, b.Samples, s.opts.Workers)
}

// count counts the samples and bytes of each source.
func (m *batchMemory) count() {
	m.sources = append(m.sources[:0], make([]stats.Source, len(m.from))...)
	for i := range m.samples {
		smp := &m.samples[i]
		if smp.Padding {
			continue
		}
		of := &m.sources[smp.source]
		of.Samples++
		for k := range smp.Fields {
			of.Bytes += uint64(len(smp.Fields[k].Data))
		}
	}
}

// Add implements assemble.Sink.
func (m *batchMemory) Add(place int, r *order.Ref, key []byte, fields []format.FieldView) {
	if n := len(m.samples); place != n && len(m.places) == 0 { // the first after a skipped one
		for i := range n {
			m.places = append(m.places, int32(i))
		}
	}
	if len(m.places) > 0 || place != len(m.samples) {
		m.places = append(m.places, int32(place))
	}
	m.samples = append(m.samples, Sample{Number: r.Number, Key: key, Fields: fields, Epoch: r.Epoch, Draw: r.Draw, source: r.Source, Padding: r.Padding, of: m.from[r.Source]})
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
	b.Samples, b.memory = nil, nil
	clear(m.samples) // what lies idle keeps no block alive
	m.samples, m.places = m.samples[:0], m.places[:0]
	m.rows.Reset()
	m.Reset()
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

// Place returns the place of sample i of Samples, or of row i, in this rank's part: i, or more after
// skipped samples.
func (b *Batch) Place(i int) int {
	if b.s.rows != nil {
		return int(b.memory.rows.Places[i])
	}
	if len(b.memory.places) > 0 {
		return int(b.memory.places[i])
	}
	return i
}

// SkippedSamples returns how many samples the ledger lists after this batch, as its checkpoint
// counts them.
func (b *Batch) SkippedSamples() uint64 { return b.skipped.Samples }

// Last reports whether no other batch of this size begins in the epoch that this one begins in. The
// last batch of a mix whose sources are used up within an epoch is not known before its end.
func (b *Batch) Last() bool {
	return b.s.run.last(b, uint64(b.s.split.GlobalBatch))
}

// Cut returns the unit of sample i of Samples, and the piece of the sample that is in it. Call it
// only where Units is not 0, and before Release.
func (b *Batch) Cut(i int) order.Cut { return b.draft.Cuts[b.Place(i)] }

// UnitSource returns the number of the source of a unit of this rank's part, and the epoch of that
// source that the unit is of: also where all its samples were removed. Call it only where Units is
// not 0, and before Release.
func (b *Batch) UnitSource(unit uint32) (source int, epoch uint64) {
	i := sort.Search(len(b.draft.Cuts), func(i int) bool { return b.draft.Cuts[i].Unit >= unit })
	return int(b.draft.Refs[i].Source), uint64(b.draft.Refs[i].Epoch)
}
