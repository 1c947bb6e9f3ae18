package reader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/format/stacked"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/mapped"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/stats"
)

// useRows has the stream deliver rows, where its options ask for them.
func (s *Stream) useRows(ctx context.Context) error {
	o := &s.opts
	switch {
	case o.Rows == NoRows:
		return nil
	case o.Rows != RowsReady && o.Rows != RowsInPlace:
		return optionsError{fmt.Errorf("reader: Rows is %d: give NoRows, RowsReady or RowsInPlace", o.Rows)}
	case o.Map != nil:
		return optionsError{errors.New("reader: Map gets samples, and with Rows a stream delivers none: leave out one of them")}
	case o.inUnits():
		return optionsError{errors.New("reader: units are made of samples, and with Rows a stream delivers none: leave out one of them")}
	}
	l, err := s.layout(ctx)
	if o.RowsIf != nil && (errors.Is(err, ErrFields) || err == nil && !o.RowsIf(rowFields(l))) {
		o.Rows = NoRows
		return nil
	}
	s.rows = l
	for _, in := range s.inputs {
		in.rows = l
	}
	return err
}

// layout returns the layout of the shards of all sources.
func (s *Stream) layout(ctx context.Context) (*stacked.Layout, error) {
	all := &stacked.Layout{} // where there are no samples
	for _, in := range s.inputs {
		if in.Dataset == nil {
			continue
		}
		l, err := in.layout(ctx)
		if err == nil && l != nil && all.Fields != nil && !l.Equal(all) {
			err = fmt.Errorf("reader: %w: its rows differ from those of the sources before it: stream samples", ErrFields)
		}
		if err != nil {
			return nil, in.failed(err)
		}
		if l != nil {
			all = l
		}
	}
	return all, nil
}

// layout returns the layout that all shards have; nil where there are no samples.
func (in *input) layout(ctx context.Context) (l *stacked.Layout, err error) {
	for part := range in.tables.Parts {
		p, err := in.catalog.Part(ctx, part)
		if err != nil {
			return nil, err
		}
		for i := range p.Shards {
			of := &p.Shards[i]
			switch {
			case of.Samples == 0:
			case of.Layout == nil:
				return nil, fmt.Errorf("reader: %w: shard %s is not stacked, so it has no rows: stream samples", ErrFields, of.Name)
			case l != nil && !l.Equal(of.Layout):
				return nil, fmt.Errorf("reader: %w: the rows of shard %s differ from those of the shards before it: stream samples", ErrFields, of.Name)
			default:
				l = of.Layout
			}
		}
	}
	return l, nil
}

// rowBytes returns the length of all rows of a sample, and that of its fields as they are in a
// sample.
func rowBytes(l *stacked.Layout) (rows, fields int64) {
	if l != nil {
		rows = l.Row()
		for i := range l.Fields {
			fields += l.Fields[i].Size()
		}
	}
	return rows, fields
}

// rowsCost is what a sample of a batch takes in memory: its reference, and its rows where they are
// copied ahead.
func rowsCost(inputs []*input, o *StreamOptions) (n int64) {
	const reference = 8 + 4
	n = reference
	for _, in := range inputs {
		if rows, _ := rowBytes(in.rows); o.Rows == RowsReady {
			n = max(n, reference+rows)
		}
	}
	return n
}

// copiers copy the rows of batches that were found, several batches at a time, and hand them on in
// order:
//
//	assembler ──▶ found ──▶ goroutines copy ──┐
//	          └─▶ inOrder ───────────────────▶ hand to the consumer
type copiers struct {
	s       *Stream
	found   chan *Batch
	inOrder chan assembled
	wg      sync.WaitGroup
}

// copiers returns how many goroutines copy rows ahead of the consumer.
func (o *StreamOptions) copiers() int {
	if o.Rows != RowsReady {
		return 0
	}
	return min(o.Workers, runtime.GOMAXPROCS(0))
}

// copyAhead starts the copiers.
func (s *Stream) copyAhead(ctx context.Context) *copiers {
	n := s.sizes.queue
	c := &copiers{s: s, found: make(chan *Batch, n), inOrder: make(chan assembled, n)}
	for range s.opts.copiers() {
		c.wg.Go(func() {
			for b := range c.found {
				err := context.Cause(ctx) // else Close would wait for copies that nobody wants
				if err == nil {
					err = s.ofSource(b.memory.rows.MakeAll(s.rows))
				}
				b.memory.copied <- err
			}
		})
	}
	c.wg.Go(func() {
		for out := range c.inOrder {
			if out.err == nil {
				out.err = <-out.memory.copied
			}
			if !s.hand(ctx, out) {
				return
			}
		}
	})
	return c
}

// hand is Stream.hand for a batch whose rows are still to be copied.
func (c *copiers) hand(ctx context.Context, out assembled) bool {
	if out.err == nil {
		c.found <- out.Batch
	}
	select {
	case c.inOrder <- out:
		return true
	case <-ctx.Done():
		return false
	}
}

// end ends the copiers once all batches are copied and handed on, or ctx has ended.
func (c *copiers) end() {
	close(c.found)
	close(c.inOrder)
	c.wg.Wait()
}

// fillRows finds the rows of the batch.
func (b *Batch) fillRows(ctx context.Context, a *assemble.Assembler) (err error) {
	s, m := b.s, &b.memory.rows
	if b.counts, err = a.FillRows(ctx, b.draft, m, s.rows); err != nil {
		return s.ofSource(err)
	}
	size := s.sizes.fields
	b.counts.Bytes = int64(b.counts.Samples) * size
	b.Holes, b.skipped = b.counts.Skipped, s.ledger.Mark()
	if s.mix == nil {
		return nil
	}
	b.memory.sources = append(b.memory.sources[:0], make([]stats.Source, len(s.inputs))...)
	for i := range m.Places {
		if r := b.Ref(i); !r.Padding {
			of := &b.memory.sources[r.Source]
			of.Samples++
			of.Bytes += uint64(size)
		}
	}
	return nil
}

// Len returns the number of rows, or of Samples without StreamOptions.Rows.
func (b *Batch) Len() int {
	if b.s.rows == nil || b.memory == nil {
		return len(b.Samples)
	}
	return len(b.memory.rows.Places)
}

// Ref returns what row i is: its number, epoch, draw and source, and whether it is padding, whose
// row is zero. Call it only with StreamOptions.Rows, and before Release. Do not write to it.
func (b *Batch) Ref(i int) *order.Ref { return &b.draft.Refs[b.memory.rows.Places[i]] }

// Seed returns the seed of row i, see Sample.Seed.
func (b *Batch) Seed(i int) uint64 {
	r := b.Ref(i)
	return order.SampleSeed(b.s.inputs[r.Source].plan.Params().Seed, uint64(r.Epoch), r.Number, r.Draw)
}

// AppendKey appends the key of row i; padding has none.
func (b *Batch) AppendKey(dst []byte, i int) []byte { return b.memory.rows.AppendKey(dst, i) }

// Rows returns the rows of a field, one after another: row i is data[i*stride:][:stride], and there
// are Len of them. It is one array of the type and shape that StreamInfo.Rows states, in the order
// of the stream, without the headers that the samples of stacked data have. It is valid until
// Release, or until the next call of Next when StreamOptions.Hold is 0. data is nil, and stride 0,
// where there is no such field. With RowsInPlace, data alone is nil where CopyRows fails.
func (b *Batch) Rows(field string) (data []byte, stride int) {
	f, stride := b.rowField(field)
	if f < 0 {
		return nil, 0
	}
	data, _ = b.memory.rows.Make(f, stride)
	return data, stride
}

// CopyRows is Rows into the caller's memory: dst has Len times the stride bytes. It fails where there
// is no such field, and, with objstore.ErrChanged, where the rows are those of a file that another
// program writes to. dst is undefined then.
func (b *Batch) CopyRows(dst []byte, field string) error {
	f, stride := b.rowField(field)
	if f < 0 {
		return fmt.Errorf("reader: %w: rows have no field %q", ErrFields, field)
	}
	return b.s.ofSource(b.memory.rows.Copy(dst[:b.Len()*stride], f))
}

// ofSource names the source in an error of a copy.
func (s *Stream) ofSource(err error) error {
	var at *mapped.Error
	if !errors.As(err, &at) {
		return err
	}
	return s.inputs[at.Source].failed(err)
}

// rowField finds a field; -1 where there is none.
func (b *Batch) rowField(name string) (i, stride int) {
	if b.s.rows == nil {
		return -1, 0
	}
	for i := range b.s.rows.Fields {
		if f := &b.s.rows.Fields[i]; f.Name == name {
			return i, int(f.Row())
		}
	}
	return -1, 0
}
