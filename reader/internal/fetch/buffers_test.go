package fetch

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSizeOf checks that a size holds what was asked for, wastes at most an eighth, and is stable.
func TestSizeOf(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 4096, 4097, 1 << 20, 1<<20 + 1, 5 << 20, 1<<30 - 1} {
		size := SizeOf(n)
		if size < n || size > n+n/8+512 || SizeOf(size) != size {
			t.Errorf("a buffer for %d bytes has %d", n, size)
		}
	}
}

// TestPool takes and puts at random: the bytes held stay within the limit as long as nothing is
// forced, and one buffer alone is always granted.
func TestPool(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := Pool{Limit: 1 << 20}
	var out [][]byte
	for range 20_000 {
		if len(out) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(out))
			p.Put(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
			continue
		}
		n := 1 + random.IntN(1<<(8+random.IntN(11)))
		buf := p.Take(n)
		if buf == nil {
			if len(out) == 0 {
				t.Fatalf("%d bytes were refused to one alone", n)
			}
			continue
		}
		if len(buf) != n {
			t.Fatalf("%d bytes of %d", len(buf), n)
		}
		out = append(out, buf)
	}
	if p.Most() > 1<<20 {
		t.Errorf("%d bytes were held, the limit is %d", p.Most(), 1<<20)
	}
	for _, buf := range out {
		p.Put(buf)
	}
	p.Trim()
	if p.used != 0 || p.Lent() != 0 || p.out != 0 {
		t.Errorf("%+v after all came back", p)
	}
	if buf := p.Take(4 << 20); len(buf) != 4<<20 || p.Take(1) != nil {
		t.Error("a buffer above the limit must be granted alone, and no other beside it")
	}
}

// TestPoolEnds: large buffers leave a pool that has ended, the one put back before and the one
// after, and small ones stay.
func TestPoolEnds(t *testing.T) {
	p := Pool{Limit: 4 * largeBuffer}
	p.Map()
	small, before, after := p.Take(1000), p.Take(largeBuffer), p.Take(largeBuffer)
	const within = largeBuffer / 2 // the first page has other buffers, too
	before[within], after[within] = 1, 1
	p.Put(before)
	if p.used < 2*largeBuffer {
		t.Fatal("a large buffer has left before the end")
	}
	p.End()
	if after[within] != 1 {
		t.Error("a buffer in hand has changed")
	}
	p.Put(after)
	p.Put(small)
	if p.used != int64(SizeOf(1000)) || p.Lent() != 0 {
		t.Errorf("%d bytes are kept, %d are out", p.used, p.Lent())
	}
	if p.arena != nil && (before[within] != 0 || after[within] != 0) {
		t.Error("the system has not got its memory back")
	}
	p.Close()
}

// TestBuffers has goroutines wait for room: never more than the limit is out, and nobody is left.
func TestBuffers(t *testing.T) {
	const limit = 64 << 10
	b := NewBuffers(limit)
	var out atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 200 {
				buf, err := b.Get(t.Context(), 1+(i*k*97)%(20<<10))
				if err != nil {
					t.Error(err)
					return
				}
				if n := out.Add(int64(cap(buf))); n > limit {
					t.Errorf("%d bytes are out", n)
				}
				out.Add(-int64(cap(buf)))
				b.Put(buf)
			}
		})
	}
	wg.Wait()
	large, err := b.Get(t.Context(), 10*limit)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := b.Get(ctx, 1); err == nil {
		t.Error("a second buffer beside one above the limit")
	}
	b.Put(large)
	if _, err := b.Get(t.Context(), 1); err != nil {
		t.Error(err)
	}
}
