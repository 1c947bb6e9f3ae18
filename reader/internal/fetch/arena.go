package fetch

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/shardtool/shardtool/internal/sys/extent"
)

// arena is memory from the system that buffers are cut from, where the system maps it in large
// pages: filling 1 GiB of it for the first time takes a fifth of what separate buffers of the Go
// heap take. The collector does not know it: a slice of it must not be used once the arena is
// given back, and an arena that was abandoned is kept by references to the arena, not to slices.
type arena struct {
	mem       []byte
	free      extent.List
	drop      *time.Timer     // while it is a spare one
	abandoned int64           // bytes in hand, if it was abandoned
	seal      runtime.Cleanup // of an abandoned one
}

const (
	// leastArena is the smallest arena: two large pages.
	leastArena = 4 << 20
	// arenaKept is how long an arena without an owner keeps its memory for the next stream.
	arenaKept = 10 * time.Second
)

// spare has the arenas that were given back. The next streams take them: their pages are there
// already. A process may have many streams at a time, one for each rank. Together with those in use
// the spare ones never have more bytes than were in use at a time.
var spare struct {
	sync.Mutex
	arenas      []*arena // the one given back last at the end
	bytes       int      // of them
	inUse, most int
	abandoned   int64 // bytes in hand of abandoned arenas
	checked     int64 // the same when the collector was last told to look
}

// newArena returns an arena of at least size bytes, or nil if the system has none. Callers then use
// the heap.
func newArena(size int64) *arena {
	if size < leastArena || size != int64(int(size)) {
		return nil
	}
	collect()
	spare.Lock()
	defer spare.Unlock()
	a := takeSpare(int(size))
	if a == nil {
		mem := mapMemory(int(size))
		if mem == nil {
			return nil
		}
		a = &arena{mem: mem}
	}
	a.free = extent.List{{At: 0, Size: len(a.mem)}}
	spare.inUse += len(a.mem)
	spare.most = max(spare.most, spare.inUse)
	trimSpare()
	return a
}

// collect runs the collector if abandoned arenas hold much memory. The collector does not count
// that memory, so it would not run by itself.
func collect() {
	spare.Lock()
	many := spare.abandoned > max(int64(spare.most), 2*spare.checked)
	if many {
		spare.checked = spare.abandoned
	}
	spare.Unlock()
	if many {
		runtime.GC()
	}
}

// takeSpare takes the smallest spare arena that has size bytes, and not more than twice as many.
// spare is locked.
func takeSpare(size int) *arena {
	var best *arena
	for _, a := range spare.arenas {
		if n := len(a.mem); n >= size && n <= 2*size && (best == nil || n < len(best.mem)) {
			best = a
		}
	}
	removeSpare(best)
	return best
}

// removeSpare removes an arena from the spare ones, and reports whether it was one of them. spare
// is locked.
func removeSpare(a *arena) bool {
	i := slices.Index(spare.arenas, a)
	if i < 0 {
		return false
	}
	spare.arenas = slices.Delete(spare.arenas, i, i+1)
	spare.bytes -= len(a.mem)
	a.drop.Stop()
	return true
}

// trimSpare frees the arenas given back first, as far as there are more bytes than were in use at a
// time. spare is locked.
func trimSpare() {
	for len(spare.arenas) > 0 && spare.inUse+spare.bytes > spare.most {
		a := spare.arenas[0]
		removeSpare(a)
		unmapMemory(a.mem)
	}
}

// giveBack ends the use of all buffers of the arena. It becomes a spare one, for a while.
func (a *arena) giveBack() {
	spare.Lock()
	defer spare.Unlock()
	if a.abandoned > 0 {
		a.seal.Stop()
		leave(a.abandoned)
		a.abandoned = 0
	} else {
		spare.inUse -= len(a.mem)
	}
	spare.arenas = append(spare.arenas, a)
	spare.bytes += len(a.mem)
	a.drop = time.AfterFunc(arenaKept, func() {
		spare.Lock()
		defer spare.Unlock()
		if removeSpare(a) {
			unmapMemory(a.mem)
		}
	})
}

// abandon frees what is not cut, and keeps the bytes in hand as they are for as long as anything
// refers to the arena, or until it is given back. Nobody else gets the addresses afterwards: a
// slice that outlives all references to the arena cannot be read, and never shows the bytes of
// another stream.
func (a *arena) abandon(inHand int64) {
	a.forget()
	spare.Lock()
	defer spare.Unlock()
	spare.inUse -= len(a.mem)
	spare.abandoned += inHand
	a.abandoned = inHand
	a.seal = runtime.AddCleanup(a, func(mem []byte) {
		sealMemory(mem)
		spare.Lock()
		defer spare.Unlock()
		leave(inHand)
	}, a.mem)
}

// leave subtracts bytes from the abandoned ones. spare is locked.
func leave(n int64) {
	spare.abandoned -= n
	spare.checked = min(spare.checked, spare.abandoned)
}

// cut returns a buffer of size bytes, or nil if no place is large enough. It holds bytes of an
// earlier use, or 0.
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
