package fetch

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// testArena is an arena on the heap, for systems and builds without another.
func testArena(size int) *arena {
	a := &arena{mem: make([]byte, size)}
	a.free.Put(0, size)
	return a
}

// TestPoolInArena takes and puts buffers of an arena at random: none overlaps another, what the
// arena has no room for is of the heap, and at the end all of the arena is free.
func TestPoolInArena(t *testing.T) {
	const limit = 1 << 20
	random := rand.New(rand.NewPCG(1, 2))
	p := Pool{Limit: limit, arena: testArena(limit)}
	type lent struct {
		buf  []byte
		mark byte
	}
	var out []lent
	heap := 0
	for i := range 20_000 {
		if len(out) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(out))
			if o := out[i]; slices.Max(o.buf) != o.mark || slices.Min(o.buf) != o.mark {
				t.Fatal("two buffers share bytes")
			}
			p.Put(out[i].buf)
			out = slices.Delete(out, i, i+1)
			continue
		}
		take := p.Take
		if i%100 == 0 {
			take = p.Force // beyond the limit, too
		}
		buf := take(1 + random.IntN(1<<(8+random.IntN(11))))
		if buf == nil {
			continue
		}
		if at := uintptr(unsafe.Pointer(&buf[0])) - uintptr(unsafe.Pointer(&p.arena.mem[0])); at >= limit {
			heap++
		}
		buf = buf[:cap(buf)]
		o := lent{buf, byte(i)}
		for k := range buf {
			buf[k] = o.mark
		}
		out = append(out, o)
	}
	if heap == 0 {
		t.Error("the arena was never full, so the test shows less than it says")
	}
	for _, o := range out {
		p.Put(o.buf)
	}
	p.Trim()
	if f := p.arena.free; p.used != 0 || len(f) != 1 || f[0].Size != limit {
		t.Errorf("%d bytes in use, free: %v", p.used, f)
	}
}

// TestSpareArenas gives arenas back: the next owners get the same memory if it is of the size asked
// for, with all of it free. No more is kept than was in use at a time.
func TestSpareArenas(t *testing.T) {
	const mib = 1 << 20
	a := newArena(8 * mib)
	if a == nil {
		t.Skip("this system or build maps no memory")
	}
	most := func() {
		if spare.inUse+spare.bytes > spare.most {
			t.Fatalf("%d bytes in use and %d spare, %d were in use at most", spare.inUse, spare.bytes, spare.most)
		}
	}
	second := newArena(8 * mib)
	a.cut(mib)[0] = 1
	a.giveBack()
	second.giveBack()
	most()
	if len(spare.arenas) < 2 {
		t.Fatal("of two arenas that were in use together, not both are kept")
	}
	large := newArena(32 * mib)
	if large == nil || large == a || large == second {
		t.Fatal("a small arena was given for a large one")
	}
	most()
	large.giveBack()
	most()
	if len(spare.arenas) != 1 {
		t.Fatalf("%d arenas are kept, with more bytes than were in use at a time", len(spare.arenas))
	}
	b := newArena(20 * mib)
	if b != large || len(b.free) != 1 || b.free[0].Size != len(b.mem) {
		t.Fatalf("%p with %v free, want %p", b, b.free, large)
	}
	if buf := b.cut(len(b.mem)); len(buf) != len(b.mem) || b.cut(1) != nil {
		t.Errorf("%d bytes of %d", len(buf), len(b.mem))
	}
	b.giveBack()
	c := newArena(1 << 30) // address space alone
	if c == nil {
		t.Skip("this system gives no gibibyte of addresses")
	}
	c.forget()
	c.giveBack()
	if !slices.Contains(spare.arenas, c) {
		t.Error("the arena that was given back last is not kept")
	}
	most()
}

// TestAbandonedArena: buffers of an arena that was abandoned stay as they are while something
// refers to it. Its memory is gone afterwards, and nobody gets the addresses.
func TestAbandonedArena(t *testing.T) {
	const mib = 1 << 20
	p := Pool{Limit: 8 * mib}
	if p.Map(); p.arena == nil {
		t.Skip("this system or build maps no memory")
	}
	state := func() (inUse int, abandoned int64) {
		spare.Lock()
		defer spare.Unlock()
		return spare.inUse, spare.abandoned
	}
	_, none := state()
	buf := p.Force(mib)
	p.Put(p.Force(2 * mib))
	buf[0], buf[mib-1] = 1, 2
	p.Abandon()
	runtime.GC()
	before, n := state()
	if n != none+mib {
		t.Fatalf("%d bytes are abandoned, want %d", n, none+mib)
	}
	other := newArena(8 * mib)
	if buf[0] != 1 || buf[mib-1] != 2 || other == p.arena {
		t.Fatal("a buffer in hand has changed")
	}
	other.giveBack()
	at := unsafe.SliceData(p.arena.mem)
	p.arena = nil
	for {
		runtime.GC() // it comes by itself, too, but who knows when
		if _, n := state(); n == none {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if inUse, _ := state(); inUse != before {
		t.Errorf("%d bytes in use, want %d", inUse, before)
	}
	var more []*arena
	for range 20 {
		a := newArena(8 * mib)
		if more = append(more, a); unsafe.SliceData(a.mem) == at {
			t.Fatal("another owner has the addresses")
		}
	}
	for _, a := range more {
		a.giveBack()
	}
	// One that was given back in the end is like any other.
	p.Map()
	last := p.arena
	p.Force(mib)
	p.Abandon()
	p.Close()
	if _, n := state(); n != none || !slices.Contains(spare.arenas, last) {
		t.Errorf("%d bytes are abandoned after all came back", n)
	}
}
