package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/internal/stacked"
	"github.com/shardtool/shardtool/internal/stats"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/order"
)

// useRows has the stream deliver rows, where its options ask for them.
func (s *Stream) useRows(ctx context.Context) error {
	o := &s.opts
	switch {
	case !o.Rows:
		return nil
	case o.Map != nil:
		return optionsError{errors.New("reader: Map gets samples, and with Rows a stream delivers none: leave out one of them")}
	case s.run.info().Units.Kind != "":
		return optionsError{errors.New("reader: units are made of samples, and with Rows a stream delivers none: leave out one of them")}
	}
	l, err := s.layout(ctx)
	if o.RowsIf != nil && (errors.Is(err, ErrFields) || err == nil && !o.RowsIf(rowFields(l))) {
		o.Rows = false
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

// fillRows finds the rows of the batch.
func (b *Batch) fillRows(ctx context.Context, a *assemble.Assembler) (err error) {
	s, m := b.s, &b.memory.rows
	if b.counts, err = a.FillRows(ctx, b.draft, m, s.rows); err != nil {
		return err
	}
	size := s.sizes.fields
	b.counts.Bytes = int64(b.counts.Samples) * size
	b.Holes, b.skipped = b.counts.Skipped, s.ledger.Mark()
	if len(s.count.sources) == 0 {
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
// of the stream, without the headers that the samples of stacked data have. The first call for a
// field copies the rows into memory of the batch; it is valid until Release, or until the next call
// of Next when StreamOptions.Hold is 0. data is nil, and stride 0, where there is no such field.
func (b *Batch) Rows(field string) (data []byte, stride int) {
	f, stride := b.rowField(field)
	if f < 0 {
		return nil, 0
	}
	return b.memory.rows.Make(f, stride), stride
}

// CopyRows is Rows into the caller's memory: dst has Len times the stride bytes. It fails where there
// is no such field.
func (b *Batch) CopyRows(dst []byte, field string) error {
	f, stride := b.rowField(field)
	if f < 0 {
		return fmt.Errorf("reader: %w: rows have no field %q", ErrFields, field)
	}
	b.memory.rows.Copy(dst[:b.Len()*stride], f)
	return nil
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
