package reader

import (
	"context"
	"sync"
)

// buffers hands out memory up to a limit and takes it back to hand out again. One goroutine gets, in the order in which
// the results are wanted; so what the consumer waits for has its memory already, and waiting here cannot lock up.
type buffers struct {
	limit int64
	wake  chan struct{} // one token: something was put back

	mu    sync.Mutex
	total int64 // bytes of all buffers, handed out or free
	out   int   // handed out
	free  [][]byte
}

func newBuffers(limit int64) *buffers {
	return &buffers{limit: limit, wake: make(chan struct{}, 1)}
}

// get returns a buffer of at least n bytes, waiting until there is room. One that is alone is always granted.
func (b *buffers) get(ctx context.Context, n int) ([]byte, error) {
	for {
		if buf := b.try(n); buf != nil {
			return buf, nil
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (b *buffers) try(n int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The one put back last may still be in the processor's cache. A much larger one is left for a job that needs it.
	for i := len(b.free) - 1; i >= 0; i-- {
		if c := cap(b.free[i]); c >= n && c <= 2*n+64<<10 {
			buf := b.free[i]
			b.free = append(b.free[:i], b.free[i+1:]...)
			b.out++
			return buf[:c]
		}
	}
	// An eighth more than asked for: the next job is about as large, and shall fit as well.
	size := n + n/8
	for b.total+int64(size) > b.limit && len(b.free) > 0 {
		b.total -= int64(cap(b.free[0]))
		b.free = b.free[1:]
	}
	if b.total+int64(size) > b.limit {
		if size = n; b.out > 0 && b.total+int64(size) > b.limit {
			return nil
		}
	}
	b.total += int64(size)
	b.out++
	return make([]byte, size)
}

func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	b.out--
	b.free = append(b.free, buf)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// reserve takes n bytes off the limit for memory that is not handed out here.
func (b *buffers) reserve(n int64) { b.limit -= min(n, b.limit/2) }

// scratch is what one goroutine needs to turn stored bytes into samples.
type scratch struct {
	decoder *decoder
	stored  []byte // up to what is read at once
	decoded []byte // of random reads
}

// scratchKeep is the largest decoded buffer that is kept for the next random read.
const scratchKeep = 4 << 20

// scratchPool keeps scratch for the next use: making a decoder costs more than decoding a block.
type scratchPool struct {
	mu     sync.Mutex
	idle   []*scratch
	closed bool
}

// scratchIdle bounds what the pool keeps: some 6 MiB each.
const scratchIdle = 32

func (p *scratchPool) get() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return s
	}
	return &scratch{decoder: newDecoder()}
}

func (p *scratchPool) put(s *scratch) {
	if cap(s.decoded) > scratchKeep {
		s.decoded = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == scratchIdle {
		s.decoder.close()
		return
	}
	p.idle = append(p.idle, s)
}

func (p *scratchPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		s.decoder.close()
	}
	p.idle = nil
}
