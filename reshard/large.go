package reshard

import (
	"context"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// largeBlock is a block that was not read whole: its samples are taken from the index, and each
// payload is read on its own.
type largeBlock struct {
	shard int
	end   uint64 // number of the sample after its last one in the part
	sizes *metadata.FieldCursor
}

// fromLarge takes the next sample of the large block, or skips it.
func (s *joined) fromLarge(ctx context.Context) (writer.Sample, bool, error) {
	of, l := s.sets[s.set], s.large
	if s.at >= l.end {
		s.large = nil
		return writer.Sample{}, false, nil
	}
	if err := of.load(ctx, l.shard); err != nil {
		if reader.Damaged(err) {
			s.large, s.bad = nil, &badBlock{shard: l.shard, end: l.end, err: err}
			return writer.Sample{}, false, nil
		}
		s.drop()
		return writer.Sample{}, false, fmt.Errorf("%v: %w", of.Store(), err)
	}
	number := s.at
	i := int(number - of.shardFirst)
	if l.sizes == nil {
		l.sizes = &of.index.Cursors([]int{i})[0]
	}
	sizes := l.sizes.Fields(nil)
	s.at++
	key := of.index.Keys.At(i)
	if key == "" || !s.chosen([]byte(key)) {
		return writer.Sample{}, false, nil
	}
	ok, err := s.attributes(ctx, of, l.shard, number)
	if err != nil || !ok {
		return writer.Sample{}, false, err
	}
	s.fields = s.fields[:0]
	for _, f := range sizes {
		if n := s.name(f.Name); !n.drop {
			s.fields = append(s.fields, writer.Field{Name: n.name, Size: f.Size,
				Payload: &payload{of, number, f.Name, f.Size}})
		}
	}
	return s.sample(of, key, number)
}

// payload is a field that a worker reads later.
type payload struct {
	of     *set
	number uint64
	field  string
	size   int64
}

// ReadInto implements writer.Payload.
func (p *payload) ReadInto(ctx context.Context, to []byte) error {
	w := &fillWriter{to: to}
	if err := p.of.Field(ctx, p.number, p.field, w); err != nil {
		return err
	}
	return p.exact(int64(w.n))
}

// exact compares the bytes that were read with the size in the index.
func (p *payload) exact(n int64) error {
	if n != p.size {
		return fmt.Errorf("%w: field %q has %d bytes, the index says %d", format.ErrCorrupt, p.field, n, p.size)
	}
	return nil
}

// fillWriter fills a buffer and counts the bytes beyond it.
type fillWriter struct {
	to []byte
	n  int
}

func (w *fillWriter) Write(p []byte) (int, error) {
	if w.n < len(w.to) {
		copy(w.to[w.n:], p)
	}
	w.n += len(p)
	return len(p), nil
}

// Open implements writer.Payload.
func (p *payload) Open(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		counted := &countWriter{w: w}
		err := p.of.Field(ctx, p.number, p.field, counted)
		if err == nil {
			err = p.exact(counted.n)
		}
		w.CloseWithError(err) // nil is io.EOF
	}()
	return &pipeReader{r, cancel, done}, nil
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// pipeReader waits on Close for the goroutine that writes.
type pipeReader struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (r *pipeReader) Close() error {
	r.cancel()
	err := r.PipeReader.Close()
	<-r.done
	return err
}

// badBlock is a block whose samples cannot be read.
type badBlock struct {
	shard int
	end   uint64
	err   error
}

// fromBad returns the error of the block's next sample. If the index is intact it names the sample,
// and skips those that are not selected.
func (s *joined) fromBad(ctx context.Context) error {
	of, b := s.sets[s.set], s.bad
	if s.at >= b.end {
		s.bad = nil
		return nil
	}
	number := s.at
	s.at++
	key := ""
	if err := of.load(ctx, b.shard); err == nil {
		key = of.index.Keys.At(int(number - of.shardFirst))
		if key == "" || !s.chosen([]byte(key)) {
			return nil
		}
		if ok, _ := s.attributes(ctx, of, b.shard, number); !ok {
			return nil
		}
	} else if ctx.Err() != nil {
		s.at = number
		return context.Cause(ctx)
	} else if of.Removed(number) {
		return nil
	}
	return &writer.SampleError{Origin: of.path, Source: of.path, Row: int64(number) + 1, Key: key, Err: b.err}
}
