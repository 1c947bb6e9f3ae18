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
	"github.com/shardtool/shardtool/internal/samplekey"
	"github.com/shardtool/shardtool/internal/tarblock"
	"github.com/shardtool/shardtool/writer/internal/stack"
)

// block is a block in the pipeline: laid out by Write, filled and compressed by a worker, written
// in order.
type block struct {
	layout  tarblock.Builder
	samples []blockSample
	sizes   []format.FieldSize // of all samples, in order
	fills   []fill
	// huge is the last sample of a block that decodes to more than one frame; its members are not
	// in layout.
	huge *Sample
	// size is the decoded length, that of huge included.
	size  int64
	taken int64 // of the budget

	// stack is what rows are where the block is one of rows: the layout then has the samples' files
	// without headers. ranges and width are those of the keys; stored, that the block holds them. first
	// is the number in the shard of its first sample, cursor the source's before that, out the memory
	// of the arrays.
	stack  *stack.Stack
	ranges samplekey.Ranges
	width  int
	stored bool
	first  uint64
	cursor string
	out    []byte

	// frames carries the worker's results in order; the worker closes it.
	frames chan frame
	// filled, when not nil, is closed once all payloads of the layout have been read.
	filled chan struct{}
	hash   format.Hash
	err    error

	// end, when not nil, closes the shard after this block.
	end *shardEnd
	// adopt, when not nil, is a whole shard that the store has already; all other fields are empty.
	adopt *adopted

	// left lists samples that were left out before they came into the block; unlisted counts those
	// for which the list had no room.
	left     []leftOut
	unlisted int64
}

// blockSample is what the index needs of a sample.
type blockSample struct {
	key     string
	origin  string
	fields  []format.FieldSize
	attrs   []format.AttrValue
	begin   int          // of its first member in the layout
	fill    int          // index of its first fill
	dropped *SampleError // why a worker left it out
	source  string
	row     int64
}

// fill is a payload to be read into the layout.
type fill struct {
	off, size int
	from      Payload
}

// shardEnd is the source's cursors around a shard, and how many of its samples were left out.
type shardEnd struct {
	cursorStart, cursorEnd string
	skipped                int64
}

func (b *block) reset() {
	b.layout.Reset()
	b.samples, b.sizes, b.fills, b.huge = b.samples[:0], b.sizes[:0], b.fills[:0], nil
	b.size, b.taken, b.hash, b.err, b.end, b.adopt = 0, 0, format.Hash{}, nil, nil, nil
	b.left, b.unlisted, b.filled = nil, 0, nil
	b.stack, b.ranges, b.width, b.stored = nil, nil, 0, false
	b.frames = make(chan frame, 1)
}

// shrink frees memory that an uncommonly large sample took: the budget does not count blocks that
// wait to be used again.
func (b *block) shrink(blockSize int64) {
	if int64(cap(b.layout.Buf)) > max(4<<20, 2*blockSize) {
		b.layout = tarblock.Builder{}
	}
	if int64(cap(b.out)) > max(4<<20, 2*blockSize) {
		b.out = nil
	}
	b.huge = nil
}

// add lays out a sample, whose fields are sorted.
func (b *block) add(s *Sample) {
	if b.stack != nil {
		b.addRow(s)
		return
	}
	size, first := int64(0), len(b.sizes)
	for i := range s.Fields {
		f := &s.Fields[i]
		n := f.size()
		b.sizes = append(b.sizes, format.FieldSize{Name: f.Name, Size: n})
		size += tarblock.FieldHeaderLen(s.Key, f.Name) + n + tarblock.Padding(n)
	}
	fields := b.sizes[first:len(b.sizes):len(b.sizes)]
	b.samples = append(b.samples, blockSample{
		key: s.Key, origin: s.Origin, fields: fields, attrs: cloneAttrs(s.Attrs), begin: len(b.layout.Cuts), fill: len(b.fills),
		source: s.Source, row: s.Row,
	})
	b.size += size
	if b.size > format.MaxFrame {
		huge := *s
		huge.Fields = slices.Clone(s.Fields)
		for i := range huge.Fields {
			huge.Fields[i].Data = slices.Clone(huge.Fields[i].Data)
		}
		b.huge = &huge
		return
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		at := b.layout.Member(format.JoinName(s.Key, f.Name), int(fields[i].Size))
		if f.Payload != nil {
			b.fills = append(b.fills, fill{off: at, size: int(f.Size), from: f.Payload})
		} else {
			copy(b.layout.Buf[at:], f.Data)
		}
	}
}

// cost is how many bytes of memory the block takes in the pipeline.
func (b *block) cost() int64 {
	if b.huge == nil {
		return 2 * b.size
	}
	n := int64(len(b.layout.Buf)) + 4*format.MaxFrame // a frame being filled, its result, one in the channel, one being written
	for _, f := range b.huge.Fields {
		n += int64(len(f.Data))
	}
	return n
}

// readPayloads reads the payloads of the layout. skip, when not nil, is called for samples that
// cannot be read; they are removed from the block.
func (b *block) readPayloads(ctx context.Context, p *pace, skip func(*SampleError)) {
	defer close(b.filled)
	b.err = p.read(ctx, len(b.fills), func() error { return b.fill(ctx, skip) })
}

// process waits until the layout is filled, then measures, hashes and compresses it. skip, when not
// nil, is called for a sample without a length, and for one that is too large for the layout and
// cannot be read.
func (b *block) process(ctx context.Context, enc *encoder, lengths []length, skip func(*SampleError)) {
	defer close(b.frames)
	if b.filled != nil {
		<-b.filled
	}
	if b.err == nil && ctx.Err() != nil {
		b.err = context.Cause(ctx)
	}
	if b.err == nil {
		b.err = b.measure(lengths, skip)
	}
	if b.err != nil {
		return
	}
	if b.stack != nil {
		f, ok, err := b.rows(enc, skip)
		if b.err = err; ok {
			b.frames <- f // room for one
		}
		return
	}
	b.compact()
	if b.huge != nil {
		b.err = b.stream(ctx, enc, lengths, skip)
		return
	}
	if len(b.layout.Buf) == 0 {
		return
	}
	b.hash = format.BlockHash(b.layout.Buf)
	f, err := enc.encode(b.layout.Buf, b.layout.Cuts, b.layout.Payloads)
	if err != nil {
		b.err = err
		return
	}
	b.frames <- f // room for one
}

func (s *blockSample) failed(err error) *SampleError {
	return &SampleError{Origin: s.origin, Key: s.key, Source: s.source, Row: s.row, Err: err}
}

// fill reads payloads into the layout.
func (b *block) fill(ctx context.Context, skip func(*SampleError)) error {
	for i := range b.laid() {
		s := &b.samples[i]
		end := len(b.fills)
		if i+1 < len(b.samples) {
			end = b.samples[i+1].fill
		}
		for _, f := range b.fills[s.fill:end] {
			err := f.from.ReadInto(ctx, b.layout.Buf[f.off:f.off+f.size])
			if err == nil {
				continue
			}
			se := s.failed(err)
			if skip == nil || ctx.Err() != nil {
				return se
			}
			skip(se)
			s.dropped = se
			break
		}
	}
	return nil
}

// laid is the number of samples in the layout.
func (b *block) laid() int {
	if b.huge != nil {
		return len(b.samples) - 1
	}
	return len(b.samples)
}

// compact removes the members of dropped samples from the layout.
func (b *block) compact() {
	laid := b.laid()
	if !slices.ContainsFunc(b.samples[:laid], func(s blockSample) bool { return s.dropped != nil }) {
		return
	}
	var out tarblock.Builder
	out.Buf = b.layout.Buf[:0]
	for i := range laid {
		s := &b.samples[i]
		endCut, end := len(b.layout.Cuts), len(b.layout.Buf)
		if i+1 < laid {
			endCut = b.samples[i+1].begin
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

// stream sends a block of several frames; it holds one frame at a time.
func (b *block) stream(ctx context.Context, enc *encoder, lengths []length, skip func(*SampleError)) error {
	last := &b.samples[len(b.samples)-1]
	w := &frameWriter{ctx: ctx, enc: enc, out: b.frames, buf: make([]byte, 0, format.MaxFrame), sum: sha256.New()}
	if _, err := w.Write(b.layout.Buf); err != nil {
		return err
	}
	payloads, err := openPayloads(ctx, b.huge.Fields)
	defer closePayloads(payloads)
	if err == nil {
		err = last.measureHuge(b.huge, payloads, lengths)
	}
	switch {
	case err == nil:
		err = w.sample(b.huge, payloads)
		var pe *payloadError
		if errors.As(err, &pe) {
			err = last.failed(pe.err)
			if skip != nil && ctx.Err() == nil { // the frames already sent cannot be taken back
				err = fmt.Errorf("%w; a sample of this size cannot be skipped after part of it was read: leave it out and pack again", err)
			}
		}
	case skip == nil || ctx.Err() != nil:
		err = last.failed(err)
	default:
		last.dropped = last.failed(err)
		skip(last.dropped)
		err = nil
	}
	if err == nil {
		err = w.flush()
	}
	w.sum.Sum(b.hash[:0])
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
	ctx context.Context
	enc *encoder
	out chan<- frame
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
	f, err := w.enc.encode(w.buf, nil, nil)
	if err != nil {
		return err
	}
	f.own(w.enc.pool) // w.buf takes the next one
	w.buf = w.buf[:0]
	select {
	case w.out <- f:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// sample writes all members. payloads[i] is that of field i, nil where its data is in memory.
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
