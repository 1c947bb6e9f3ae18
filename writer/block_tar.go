package writer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// tarBody stores samples as members of a tar.
type tarBody struct {
	// huge are the last samples of a block that decodes to more than one frame; their members are not
	// in the layout. Only a layer, whose blocks are another data set's, has several.
	huge []*Sample
}

func (t *tarBody) add(b *block, s *Sample) {
	fields := b.note(s)
	for i := range fields {
		n := fields[i].Size
		b.size += tarblock.FieldHeaderLen(s.Key, fields[i].Name) + n + tarblock.Padding(n)
	}
	if b.size > format.MaxFrame {
		huge := *s
		huge.Fields = slices.Clone(s.Fields)
		for i := range huge.Fields {
			huge.Fields[i].Data = slices.Clone(huge.Fields[i].Data)
		}
		t.huge = append(t.huge, &huge)
		return
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		b.put(f, b.layout.Member(format.JoinName(s.Key, f.Name), int(fields[i].Size)))
	}
}

func (t *tarBody) overflows(*block, *Sample) bool { return false }

func (t *tarBody) cost(b *block) int64 {
	if len(t.huge) == 0 {
		return 2 * b.size
	}
	// a frame being filled, its result, one in the channel, one being written
	n := int64(len(b.layout.Buf)) + 4*format.MaxFrame
	for _, s := range t.huge {
		for _, f := range s.Fields {
			n += int64(len(f.Data))
		}
	}
	return n
}

func (t *tarBody) pack(b *block, p *packer) error {
	laid := b.samples[:len(b.samples)-len(t.huge)]
	if err := p.measure(b, laid); err != nil {
		return err
	}
	b.compact(laid)
	if len(t.huge) > 0 {
		return t.stream(b, p)
	}
	if len(b.layout.Buf) == 0 {
		return nil
	}
	b.hash = format.BlockHash(b.layout.Buf)
	f, err := p.enc.encode(b.layout.Buf, b.layout.Cuts, b.layout.Payloads)
	if err != nil {
		return err
	}
	return p.send(f)
}

func (t *tarBody) renumber(uint64) bool { return false }

func (t *tarBody) index(b *block, s *openShard, sum *totals) (kept int, err error) {
	err = b.each(s, func(x *blockSample) error {
		kept++
		if err := s.index.AddSample(x.Key, x.fields, x.Attrs); err != nil {
			return err
		}
		return sum.rows(x.fields, x.Attrs)
	})
	return kept, err
}

func (t *tarBody) shrink(int) { t.huge = nil }

// compact removes the members of dropped samples from the layout. laid are the samples in it.
func (b *block) compact(laid []blockSample) {
	if !slices.ContainsFunc(laid, func(s blockSample) bool { return s.dropped != nil }) {
		return
	}
	var out tarblock.Builder
	out.Buf = b.layout.Buf[:0]
	for i := range laid {
		s := &laid[i]
		endCut, end := len(b.layout.Cuts), len(b.layout.Buf)
		if i+1 < len(laid) {
			endCut = laid[i+1].begin
			end = b.layout.Cuts[endCut]
		}
		if s.dropped != nil {
			continue
		}
		begin := b.layout.Cuts[s.begin]
		shift := begin - len(out.Buf)
		for c := s.begin; c < endCut; c++ {
			out.Cuts = append(out.Cuts, b.layout.Cuts[c]-shift)
			out.Payloads = append(out.Payloads, b.layout.Payloads[c]-shift)
		}
		out.Buf = append(out.Buf, b.layout.Buf[begin:end]...) // moves to the left within one array
	}
	b.layout = out
}

// stream sends a block of several frames; it holds one frame at a time, besides payloads in memory.
func (t *tarBody) stream(b *block, p *packer) error {
	w := &frameWriter{p: p, buf: make([]byte, 0, format.MaxFrame), sum: sha256.New()}
	_, err := w.Write(b.layout.Buf)
	laid := len(b.samples) - len(t.huge)
	for i := 0; i < len(t.huge) && err == nil; i++ {
		err = w.whole(&b.samples[laid+i], t.huge[i])
	}
	if err == nil {
		err = w.flush()
	}
	w.sum.Sum(b.hash[:0])
	return err
}

// whole writes a sample that is not in the layout, or drops it.
func (w *frameWriter) whole(of *blockSample, s *Sample) error {
	p := w.p
	payloads, err := openPayloads(p.ctx, s.Fields)
	defer closePayloads(payloads)
	if err == nil {
		err = of.measureHuge(s, payloads, p.lengths)
	}
	skips := func() bool { return p.skip != nil && p.ctx.Err() == nil }
	switch {
	case err == nil:
		err = w.sample(s, payloads)
		var pe *payloadError
		if errors.As(err, &pe) {
			err = of.failed(pe.err)
			if skips() { // the frames already sent cannot be taken back
				err = fmt.Errorf("%w; a sample of this size cannot be skipped after part of it was read: leave it out and pack again", err)
			}
		}
	case skips():
		err = p.drop(of, err)
	default:
		err = of.failed(err)
	}
	return err
}

// openPayloads opens all payloads of a sample before its first byte is sent: until then the sample
// can be left out.
func openPayloads(ctx context.Context, fields []Field) (open []io.ReadCloser, err error) {
	open = make([]io.ReadCloser, len(fields))
	for i := range fields {
		if fields[i].Payload == nil {
			continue
		}
		if open[i], err = fields[i].Payload.Open(ctx); err != nil {
			return open, err
		}
	}
	return open, nil
}

func closePayloads(open []io.ReadCloser) {
	for _, r := range open {
		if r != nil {
			r.Close()
		}
	}
}

// payloadError marks an error of the source; others are of the pipeline.
type payloadError struct{ err error }

func (e *payloadError) Error() string { return e.err.Error() }

// frameWriter cuts a stream of decoded bytes into frames of MaxFrame.
type frameWriter struct {
	p   *packer
	buf []byte
	sum hash.Hash
}

func (w *frameWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), format.MaxFrame-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == format.MaxFrame {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *frameWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.sum.Write(w.buf)
	f, err := w.p.enc.encode(w.buf, nil, nil)
	if err != nil {
		return err
	}
	f.own(w.p.enc.pool) // w.buf takes the next one
	w.buf = w.buf[:0]
	return w.p.send(f)
}

// sample writes all members. payloads[i] is the payload of field i, nil where its data is in
// memory.
func (w *frameWriter) sample(s *Sample, payloads []io.ReadCloser) error {
	for i := range s.Fields {
		f := &s.Fields[i]
		_, err := w.Write(tarblock.AppendHeader(nil, format.JoinName(s.Key, f.Name), f.size()))
		if err == nil && payloads[i] == nil {
			_, err = w.Write(f.Data)
		} else if err == nil {
			err = w.payload(f, payloads[i])
		}
		if err == nil {
			_, err = w.Write(make([]byte, -f.size()&511)) // padding
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// payload copies exactly f.Size bytes, and fails if the reader has more.
func (w *frameWriter) payload(f *Field, r io.Reader) error {
	left := f.Size
	for {
		if len(w.buf) == format.MaxFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
		room := w.buf[len(w.buf):min(int64(format.MaxFrame), int64(len(w.buf))+max(left, 1))]
		n, err := r.Read(room)
		if int64(n) > left {
			return &payloadError{fmt.Errorf("more than the %d bytes that the source listed", f.Size)}
		}
		w.buf = w.buf[:len(w.buf)+n]
		left -= int64(n)
		if err == io.EOF && left == 0 {
			return nil
		}
		if err == io.EOF {
			err = fmt.Errorf("%w: %d of %d bytes", io.ErrUnexpectedEOF, f.Size-left, f.Size)
		}
		if err != nil {
			return &payloadError{err}
		}
	}
}

// measureHuge sets the attributes of a sample that is not in the layout. payloads are its open
// fields, nil for those in memory; their bytes stay to be read.
func (s *blockSample) measureHuge(of *Sample, payloads []io.ReadCloser, lengths []length) error {
	for _, l := range lengths {
		field, wanted, err := l.wants(s.Attrs, s.fields)
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		first := of.Fields[field].Data
		if payloads[field] != nil {
			r := &peeked{ReadCloser: payloads[field]}
			if first, err = r.header(); err != nil {
				return l.failed(err)
			}
			payloads[field] = r
		}
		if err := s.measure(l, first, s.fields[field].Size); err != nil {
			return err
		}
	}
	return nil
}
