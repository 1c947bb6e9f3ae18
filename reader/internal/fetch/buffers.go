package fetch

import (
	"context"
	"math/bits"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// SizeOf returns the capacity of a buffer for n bytes: one of the eight steps between powers of
// two. Sizes are few, so a buffer that came back fits the next use, and at most an eighth is
// wasted.
func SizeOf(n int) int {
	step := max(1<<bits.Len(uint(max(n, 1)-1))>>4, 512)
	return (n + step - 1) &^ (step - 1)
}

// Pool hands out buffers and keeps those that come back for the next use. Limit bounds the bytes of
// all of them, handed out and kept; kept buffers are freed to make room. It is not safe for
// concurrent use.
type Pool struct {
	Limit int64

	used int64 // bytes of all buffers
	lent int64 // bytes handed out
	most int64 // that used has ever been
	out  int   // buffers handed out
	free [][]byte

	ended bool

	arena *arena // nil: buffers are of the heap
}

// Map makes the pool cut buffers from one arena of Limit bytes, if the system provides such memory.
// Call it before the first use.
func (p *Pool) Map() { p.arena = newArena(p.Limit) }

// Take returns a buffer of n bytes, or nil when there is no room. One buffer alone is always
// granted.
func (p *Pool) Take(n int) []byte {
	if size := int64(SizeOf(n)); p.lent+size > p.Limit && p.out > 0 {
		return nil
	}
	return p.Force(n)
}

// Force returns a buffer of n bytes whether there is room or not.
func (p *Pool) Force(n int) []byte {
	size := SizeOf(n)
	p.out++
	p.lent += int64(size)
	// The buffer put back last may still be in the processor's cache.
	for i := len(p.free) - 1; i >= 0; i-- {
		if buf := p.free[i]; cap(buf) == size {
			p.free = append(p.free[:i], p.free[i+1:]...)
			return buf[:n]
		}
	}
	for p.used+int64(size) > p.Limit && len(p.free) > 0 {
		p.drop(p.free[0])
		p.free[0] = nil
		p.free = p.free[1:]
	}
	p.used += int64(size)
	p.most = max(p.most, p.used)
	return p.fresh(size)[:n]
}

// fresh returns a buffer that is not kept yet. Where the arena has room only in pieces, its free
// memory goes back to the system, so that both together stay within the limit.
func (p *Pool) fresh(size int) []byte {
	if p.arena == nil {
		return make([]byte, size)
	}
	buf := p.arena.cut(size)
	if buf == nil {
		p.Trim()
		buf = p.arena.cut(size)
	}
	if buf != nil {
		return buf
	}
	if p.used <= p.Limit {
		p.arena.forget()
	}
	return make([]byte, size)
}

// drop frees a buffer that is kept.
func (p *Pool) drop(buf []byte) {
	p.used -= int64(cap(buf))
	p.arena.put(buf)
}

// Put takes a buffer back.
func (p *Pool) Put(buf []byte) {
	p.out--
	p.lent -= int64(cap(buf))
	if p.ended && cap(buf) >= largeBuffer {
		p.forget(buf)
		return
	}
	p.free = append(p.free, buf)
}

// largeBuffer is the size from which on a buffer goes back to the system when the pool has ended.
// The pages of smaller ones are kept for the next stream: they are few.
const largeBuffer = 32 << 20

// End tells the pool that nothing more is taken from it.
func (p *Pool) End() {
	p.ended = true
	p.free = slices.DeleteFunc(p.free, func(buf []byte) bool {
		large := cap(buf) >= largeBuffer
		if large {
			p.forget(buf)
		}
		return large
	})
}

// Again takes back End.
func (p *Pool) Again() { p.ended = false }

// forget frees a buffer and returns its memory to the system.
func (p *Pool) forget(buf []byte) {
	p.used -= int64(cap(buf))
	if p.arena.put(buf) {
		forgetMemory(buf[:cap(buf)])
	}
}

// Trim frees the buffers that are not handed out.
func (p *Pool) Trim() {
	for i, buf := range p.free {
		p.drop(buf)
		p.free[i] = nil
	}
	p.free = p.free[:0]
}

// Abandon frees what is not handed out. Buffers that are handed out stay as they are until Close,
// or until nothing refers to the pool any more.
func (p *Pool) Abandon() {
	p.Trim()
	if p.arena != nil {
		p.arena.abandon(p.lent)
	}
}

// Close frees everything but the record of Most. No buffer of an arena may be used any more.
func (p *Pool) Close() {
	if p.arena != nil {
		p.arena.giveBack()
	}
	*p = Pool{Limit: p.Limit, most: p.most}
}

// Lent returns the bytes handed out.
func (p *Pool) Lent() int64 { return p.lent }

// Most returns the largest number of bytes held at any time.
func (p *Pool) Most() int64 { return p.most }

// Buffers is a Pool for several goroutines, which wait in turn for room.
type Buffers struct {
	room *semaphore.Weighted

	mu   sync.Mutex
	pool Pool
}

// NewBuffers returns buffers of at most limit bytes together.
func NewBuffers(limit int64) *Buffers {
	limit = max(limit, 1)
	return &Buffers{room: semaphore.NewWeighted(limit), pool: Pool{Limit: limit}}
}

// Get returns a buffer of n bytes once there is room. A buffer larger than the limit is granted
// when no other is handed out.
func (b *Buffers) Get(ctx context.Context, n int) ([]byte, error) {
	if err := b.room.Acquire(ctx, b.weight(SizeOf(n))); err != nil {
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool.Force(n), nil
}

// Put takes a buffer back.
func (b *Buffers) Put(buf []byte) {
	b.mu.Lock()
	b.pool.Put(buf)
	b.mu.Unlock()
	b.room.Release(b.weight(cap(buf)))
}

func (b *Buffers) weight(size int) int64 { return min(int64(size), b.pool.Limit) }
