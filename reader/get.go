package reader

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/shardtool/shardtool/format"
)

// Get reads the sample of that number in storage order: one ranged read of its block. The sample is the caller's to keep.
// A number that no sample has wraps fs.ErrNotExist; a block larger than Options.Memory wraps format.ErrTooLarge.
func (d *Dataset) Get(ctx context.Context, number uint64) (*Sample, error) {
	j, index, err := d.locate(ctx, number)
	if err != nil {
		return nil, err
	}
	var sample *Sample
	err = d.readBlock(ctx, j, func(s *scratch, f *Frame) error {
		w := sampleWalk{}
		w.begin(f)
		for i := 0; i <= index; i++ {
			if !w.next() {
				return w.err
			}
		}
		sample = s.detach(&w.sample)
		return nil
	})
	return sample, err
}

// readBlock reads a whole block and calls use with it. The bytes are valid until use returns.
func (d *Dataset) readBlock(ctx context.Context, j job, use func(*scratch, *Frame) error) error {
	ctx, end := d.scope(ctx) // a Close in the middle ends the read
	defer end()
	j.whole = true
	p := j.plan(d.joined())
	need := int64(p.size)
	if need > d.opts.Memory && j.to-j.from > 1 {
		return (&pipeline{memory: d.opts.Memory}).fits(&j, p)
	}
	need = min(need, d.opts.Memory)
	if err := d.random.Acquire(ctx, need); err != nil {
		return context.Cause(ctx)
	}
	defer d.random.Release(need)
	s := stage{d: d, scratch: d.scratch.get()}
	defer func() { d.scratch.put(s.scratch) }()
	if cap(s.decoded) < p.size {
		s.decoded = make([]byte, p.size+p.size/8)
	}
	var one [1]result
	results := s.run(ctx, &j, p, s.decoded[:p.size], one[:0])
	if err := results[0].err; err != nil {
		return d.afterClose(err)
	}
	return use(s.scratch, &results[0].Frame)
}

// afterClose says that the data set was closed where that is why a read failed.
func (d *Dataset) afterClose(err error) error {
	if d.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// detach copies a sample out of the scratch that holds it, or takes the memory along when the sample is most of it.
func (s *scratch) detach(in *Sample) *Sample {
	size := len(in.Key)
	for i := range in.Fields {
		size += len(in.Fields[i].Name) + len(in.Fields[i].Data)
	}
	out := &Sample{Number: in.Number}
	if size > cap(s.decoded)/2 {
		s.decoded = nil
		*out = *in
		return out
	}
	buf := make([]byte, 0, size)
	keep := func(b []byte) []byte {
		at := len(buf)
		buf = append(buf, b...)
		return buf[at:len(buf):len(buf)]
	}
	out.Key = keep(in.Key)
	out.Fields = make([]format.FieldView, len(in.Fields))
	for i, f := range in.Fields {
		out.Fields[i] = format.FieldView{Name: keep(f.Name), Data: keep(f.Data)}
	}
	return out
}

// Field writes one field of the sample of that number to w, however large it is: a block of several frames passes through
// frame by frame. A sample without that field wraps fs.ErrNotExist.
func (d *Dataset) Field(ctx context.Context, number uint64, name string, w io.Writer) error {
	found := false
	var has []string
	err := d.visit(ctx, number, visitor{
		member: func(_, field []byte) bool {
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
		// Behind the one wanted there is nothing to look for.
		enough: func() bool { return found },
	})
	if err == nil && !found {
		err = fmt.Errorf("reader: sample number %d has no field %q, it has %q: %w", number, name, has, fs.ErrNotExist)
	}
	return err
}

// WriteTar writes the sample of that number to w as a tar archive: its members as they are stored, and an end of archive.
// However large it is, it passes through frame by frame.
func (d *Dataset) WriteTar(ctx context.Context, number uint64, w io.Writer) error {
	write := func(b []byte) error {
		_, err := w.Write(b)
		return err
	}
	if err := d.visit(ctx, number, visitor{header: write, payload: write, padding: write}); err != nil {
		return err
	}
	return write(format.EndOfArchive(true))
}

// visit shows the members of one sample to a visitor.
func (d *Dataset) visit(ctx context.Context, number uint64, v visitor) error {
	j, index, err := d.locate(ctx, number)
	if err != nil {
		return err
	}
	return d.walk(ctx, j, &members{want: index, visitor: v})
}

// walk runs a block through a walk over its members, whole or in pieces.
func (d *Dataset) walk(ctx context.Context, j job, m *members) error {
	m.foreign = j.shard.Foreign
	place := func(err error) error {
		return format.Position(err, j.shard.Name, j.block, j.offset, "")
	}
	if j.to-j.from == 1 {
		return d.readBlock(ctx, j, func(_ *scratch, f *Frame) error {
			return m.whole(f.Decoded, place)
		})
	}
	p := d.newPipeline()
	for u, err := range p.run(ctx, j.rowByRow()) {
		if err != nil {
			return err
		}
		for i := range u.results {
			if err := u.results[i].err; err != nil {
				return err
			}
			if err := m.write(u.results[i].Decoded, place); err != nil || m.done {
				return err
			}
		}
	}
	return m.end(place)
}

// rowByRow is the order that reads a block of several frames in pieces.
func (j *job) rowByRow() iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		row := *j
		row.whole = false
		for row.from < j.to {
			row.to = row.from + 1
			if !yield(row, nil) {
				return
			}
			row.next()
		}
	}
}
