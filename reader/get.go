package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// Get reads the sample of that number in storage order: one ranged read of its block. The sample is
// the caller's to keep. A block larger than Options.Memory is read in pieces, and the memory grows
// with the sample. If no sample has that number, the error wraps fs.ErrNotExist. If the sample was
// removed, it wraps ErrRemoved too.
func (d *Dataset) Get(ctx context.Context, number uint64) (*Sample, error) {
	if d.plain() {
		return d.get(ctx, number)
	}
	return d.getParts(ctx, number)
}

// partOf returns the part whose value of a field is delivered for a sample, nil if there is none.
func (d *Dataset) partOf(number uint64, field string) *part {
	for i := range d.parts {
		p := &d.parts[i]
		if !d.plain() && (number >= p.tables.Samples || !slices.Contains(fieldNames(p.fields()), field)) {
			continue
		}
		if p.pick != nil && len(without([]uint64{number}, p.pick.None)) == 0 {
			continue
		}
		return p
	}
	return nil
}

// getParts reads a sample with the fields of all parts.
func (d *Dataset) getParts(ctx context.Context, number uint64) (*Sample, error) {
	if _, _, err := d.locate(ctx, number); err != nil {
		return nil, err
	}
	t, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	shard, _, err := d.catalog.ShardOf(ctx, number)
	if err != nil {
		return nil, err
	}
	shards, err := d.shards(ctx, shard, &t, 0)
	if err != nil {
		return nil, err
	}
	var out *Sample
	for i := range shards {
		p := &d.parts[shards[i].Set]
		s, err := p.get(ctx, number)
		var removed *removedError // by the layer alone
		if errors.As(err, &removed) {
			continue
		}
		if err != nil {
			return nil, p.failed(err)
		}
		if p.pick != nil {
			s.Fields = p.pick.Of(s.Fields, number)
		}
		if out == nil {
			out = s
			continue
		}
		if err := p.pick.Same(out.Key, s.Key, number); err != nil {
			return nil, p.failed(err)
		}
		out.Fields = p.pick.Merge(out.Fields, s.Fields)
	}
	return out, nil
}

// get reads a sample as the data set itself has it.
func (d *Dataset) get(ctx context.Context, number uint64) (*Sample, error) {
	j, index, err := d.locate(ctx, number)
	if err != nil {
		return nil, err
	}
	if whole := j; j.Shard.Layout == nil {
		whole.Whole = true
		if whole.Fits(whole.Plan(), d.opts.Memory) != nil {
			return d.gather(ctx, j, index, number)
		}
	}
	var sample *Sample
	err = d.readBlock(ctx, j, func(s *fetch.Scratch, f *fetch.Result) error {
		w := sampleWalk{}
		w.begin(f)
		for i := 0; i <= index; i++ {
			if !w.step() {
				return w.err
			}
		}
		sample = detach(s, &w.sample)
		return nil
	})
	return sample, err
}

// gather reads a sample of a block that memory does not hold.
func (d *Dataset) gather(ctx context.Context, j fetch.Job, index int, number uint64) (*Sample, error) {
	if err := d.random.Acquire(ctx, d.opts.Memory); err != nil { // one such sample at a time
		return nil, context.Cause(ctx)
	}
	defer d.random.Release(d.opts.Memory)
	s, plan := &Sample{Number: number}, j.Plan()
	err := d.walk(ctx, j, &members{want: index, visitor: visitor{
		member: func(key, field []byte, size int64) bool {
			s.Key = append(s.Key[:0], key...)
			// A payload that append has to grow takes its size twice. The stored bytes bound what a
			// forged header makes us allocate.
			data := make([]byte, 0, min(size, int64(plan.Decoded), 64*int64(plan.Stored)))
			s.Fields = append(s.Fields, format.FieldView{Name: bytes.Clone(field), Data: data})
			return false
		},
		payload: func(b []byte) error {
			data := &s.Fields[len(s.Fields)-1].Data
			*data = append(*data, b...)
			return nil
		},
	}})
	if err != nil {
		return nil, err
	}
	if j.Shard.Foreign {
		sortFields(s.Fields)
	}
	return s, nil
}

// readBlock reads a whole block and calls use with it. The bytes are valid until use returns.
func (d *Dataset) readBlock(ctx context.Context, j fetch.Job, use func(*fetch.Scratch, *fetch.Result) error) error {
	ctx, end := d.catalog.Scope(ctx) // a Close in the middle ends the read
	defer end()
	j.Whole = true
	p := j.Plan()
	if err := j.Fits(p, d.opts.Memory); err != nil {
		return err
	}
	need := min(int64(p.Size), d.opts.Memory)
	if err := d.random.Acquire(ctx, need); err != nil {
		return context.Cause(ctx)
	}
	defer d.random.Release(need)
	w := fetch.Worker{Scratch: d.pool.Get()}
	defer func() { d.pool.Put(w.Scratch) }()
	if cap(w.Scratch.Decoded) < p.Size {
		w.Scratch.Decoded = make([]byte, p.Size+p.Size/8)
	}
	var one [1]fetch.Result
	results := w.Run(ctx, &j, p, w.Scratch.Decoded[:p.Size], one[:0])
	if err := results[0].Err; err != nil {
		return d.catalog.AfterClose(err)
	}
	return use(w.Scratch, &results[0])
}

// detach copies a sample out of the scratch that holds it, or takes the memory along when the
// sample is most of it.
func detach(s *fetch.Scratch, in *Sample) *Sample {
	out := *in
	if assemble.SizeOf(in.Key, in.Fields) > cap(s.Decoded)/2 {
		s.Decoded = nil
	} else {
		out = in.Clone()
	}
	return &out
}

// Field writes one field of the sample of that number to w, however large it is: a block of several
// frames passes through frame by frame. If the sample has no such field, the error wraps
// fs.ErrNotExist. The name may lack the extension, as in Options.Fields.
func (d *Dataset) Field(ctx context.Context, number uint64, name string, w io.Writer) error {
	fields, err := d.fieldsNamed(name)
	switch {
	case err != nil && !errors.Is(err, errNoField):
		return err
	case err == nil && slices.Contains(d.Lists(), name) && !slices.Contains(fields, name):
		return fmt.Errorf("%w: %q is a list of files: name one of them, such as %s.0.png, or take the sample",
			ErrFields, name, name)
	case err == nil:
		name = fields[0]
	}
	p, back := d.partOf(number, name), d.backOf(name)
	if p == nil {
		p, back = back, nil
	}
	if p == nil && number < d.tables.Samples {
		return &missingError{fmt.Sprintf("sample number %d has no field %q; with its layers and wanted fields the data set has %s",
			number, name, strings.Join(fieldNames(d.Fields()), ", "))}
	}
	for p != nil && p.Dataset != d {
		err := p.failed(p.Dataset.Field(ctx, number, name, w))
		if back == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		p, back = back, nil
	}
	found := false
	var has []string
	err = d.visit(ctx, number, visitor{
		member: func(_, field []byte, _ int64) bool {
			found = string(field) == name
			has = append(has, string(field))
			return false
		},
		payload: func(b []byte) error {
			if !found {
				return nil
			}
			_, err := w.Write(b)
			return err
		},
		// Members after the wanted one are not needed.
		enough: func() bool { return found },
	})
	if err == nil && !found {
		err = &missingError{fmt.Sprintf("sample number %d has no field %q; it has %s", number, name,
			strings.Join(has, ", "))}
	}
	return err
}

// WriteTar writes the sample of that number to w as a tar archive: its members as they are stored,
// and an end of archive. However large it is, it passes through frame by frame. If samples are
// delivered with layers, or with some of their fields, the error wraps ErrFields.
func (d *Dataset) WriteTar(ctx context.Context, number uint64, w io.Writer) error {
	if err := d.ownOnly("tar members"); err != nil {
		return err
	}
	write := func(b []byte) error {
		_, err := w.Write(b)
		return err
	}
	if err := d.visit(ctx, number, visitor{header: write, payload: write, padding: write}); err != nil {
		return err
	}
	return write(metadata.EndOfArchive(true))
}

// visit shows the members of one sample to a visitor.
func (d *Dataset) visit(ctx context.Context, number uint64, v visitor) error {
	j, index, err := d.locate(ctx, number)
	if err != nil {
		return err
	}
	return d.walk(ctx, j, &members{want: index, visitor: v})
}

// piecesAhead bounds the decoded bytes that walk reads ahead: enough for a frame at each of a
// few workers.
const piecesAhead = 4 * format.MaxFrame

// walk runs a block through a walk over its members, whole or in pieces.
func (d *Dataset) walk(ctx context.Context, j fetch.Job, m *members) error {
	m.foreign = j.Shard.Foreign
	place := func(err error) error {
		return format.Place{Shard: j.Shard.Name, Block: j.Block, Offset: j.Offset}.Wrap(err)
	}
	if j.To-j.From == 1 {
		return d.readBlock(ctx, j, func(_ *fetch.Scratch, f *fetch.Result) error {
			if f.Shard.Layout == nil {
				return m.whole(f.Decoded, place)
			}
			var rows block.Rows
			if err := rows.Open(f.Decoded, f.Samples, f.Kind()); err != nil {
				return placed(f, window.InBlock(err))
			}
			index := m.want
			m.want = 0 // in the block made of the one row
			return m.whole(rows.AppendTar(nil, index), place)
		})
	}
	for f, err := range d.run(ctx, pipelineOptions{memory: min(d.opts.Memory, piecesAhead)}, j.ByRow()) {
		if err != nil {
			return err
		}
		if err := m.write(f.Decoded, place); err != nil || m.done {
			return err
		}
	}
	return m.end(place)
}
