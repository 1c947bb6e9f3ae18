package fetch

import (
	"sync"
	"time"
	"unsafe"

	"github.com/shardtool/shardtool/internal/extent"
)

// arena is memory from the system that buffers are cut from, where the system maps it in large
// pages: filling 1 GiB of it for the first time takes a fifth of what separate buffers of the Go
// heap take. The collector does not know it: a slice of it must not be used once the arena is
// given back.
type arena struct {
	mem  []byte
	free extent.List
}

const (
	// leastArena is the smallest arena: two large pages.
	leastArena = 4 << 20
	// arenaKept is how long an arena without an owner keeps its memory for the next stream.
	arenaKept = 10 * time.Second
)

// spare is the last arena that was given back. The next stream takes it: its pages are there
// already.
var spare struct {
	sync.Mutex
	arena *arena
	drop  *time.Timer
}

// newArena returns an arena of at least size bytes, or nil where the system has none: callers then
// use the heap.
func newArena(size int64) *arena {
	if size < leastArena || size != int64(int(size)) {
		return nil
	}
	if a := takeSpare(int(size)); a != nil {
		return a
	}
	mem := mapMemory(int(size))
	if mem == nil {
		return nil
	}
	a := &arena{mem: mem}
	a.free.Put(0, len(mem))
	return a
}

// takeSpare takes the spare arena if it has size bytes, and not more than twice as many.
func takeSpare(size int) *arena {
	spare.Lock()
	defer spare.Unlock()
	a := spare.arena
	if a == nil || len(a.mem) < size || len(a.mem) > 2*size {
		return nil
	}
	spare.arena = nil
	spare.drop.Stop()
	a.free = extent.List{{At: 0, Size: len(a.mem)}}
	return a
}

// giveBack ends the use of all buffers of the arena. It becomes the spare one, for a while.
func (a *arena) giveBack() {
	spare.Lock()
	defer spare.Unlock()
	if old := spare.arena; old != nil {
		spare.drop.Stop()
		unmapMemory(old.mem)
	}
	spare.arena = a
	spare.drop = time.AfterFunc(arenaKept, func() {
		spare.Lock()
		defer spare.Unlock()
		if spare.arena == a {
			spare.arena = nil
			unmapMemory(a.mem)
		}
	})
}

// cut returns a buffer of size bytes, or nil where no place is large enough. Its bytes are those
// of an earlier use, or 0.
func (a *arena) cut(size int) []byte {
	if a == nil {
		return nil
	}
	at, ok := a.free.Take(size)
	if !ok {
		return nil
	}
	return a.mem[at : at+size : at+size]
}

// put takes a buffer back that was cut from the arena, and reports whether it was.
func (a *arena) put(buf []byte) bool {
	if a == nil || cap(buf) == 0 {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
	if at >= uintptr(len(a.mem)) { // below it, too: the difference wraps around
		return false
	}
	a.free.Put(int(at), cap(buf))
	return true
}

// forget returns the memory of all free places to the system.
func (a *arena) forget() {
	for _, e := range a.free {
		forgetMemory(a.mem[e.At : e.At+e.Size])
	}
}
