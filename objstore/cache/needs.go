package cache

import (
	"container/heap"
	"encoding/binary"
	"math"
	"sync"
)

// Planner is an Object whose caller knows the order to come. Objects of cached stores are Planners.
type Planner interface {
	// Need says when the range will be read after the read that comes next (or is under way): a caller that knows the
	// order says so just before each read, and says math.MaxUint64 for what is not needed again. Smaller is sooner, on one
	// scale for all that the process reads through the cache, such as the position in the order counted over epochs. Where
	// there is no room, a range needed sooner takes that of the one needed last; ranges nobody spoke of stay out of it.
	//
	// It is a word for the choice of what stays, costs nothing but memory (at most 32 MiB for the whole Cache; what goes
	// beyond is forgotten) and never changes what is read. It may be called from many goroutines. It does nothing while
	// the object's identity is not known, which is after its first read at the latest.
	Need(off int64, n int, when uint64)
}

const (
	// maxNeeds bounds each of the two tables: about 88 and 24 bytes an item, with the maps' own.
	maxNeeds = 1 << 18
)

// needs is what this process knows of the order to come.
type needs struct {
	mu sync.Mutex
	// announced are ranges that are not known to be kept: when they are needed, by the hash of their key.
	announced map[uint64]uint64
	kept      keptHeap
}

// keptHeap has the ranges that are kept, that needed last on top.
type keptHeap struct {
	all   []keptRange
	index map[uint64]int32
}

type keptRange struct {
	hash, when uint64
	off        int64
	id         [nameHash]byte
	n          uint32
	bucket     byte
	group      *group
}

func (h *keptHeap) Len() int           { return len(h.all) }
func (h *keptHeap) Less(i, j int) bool { return h.all[i].when > h.all[j].when }

func (h *keptHeap) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.index[h.all[i].hash], h.index[h.all[j].hash] = int32(i), int32(j)
}

func (h *keptHeap) Push(x any) {
	r := x.(keptRange)
	h.index[r.hash] = int32(len(h.all))
	h.all = append(h.all, r)
}

func (h *keptHeap) Pop() any {
	last := len(h.all) - 1
	r := h.all[last]
	h.all = h.all[:last]
	delete(h.index, r.hash)
	return r
}

// Need is Planner's.
func (o *object) Need(off int64, n int, when uint64) {
	id := o.id.Load()
	if id == nil || *id == noIdentity || n <= 0 || off < 0 || n > maxPiece {
		return
	}
	o.store.cache.needs.announce(key{id: *id, off: off, n: n}, when)
}

func (n *needs) announce(k key, when uint64) {
	hash := k.hash()
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.kept.index[hash]; ok {
		n.kept.all[i].when = when
		heap.Fix(&n.kept, int(i))
		return
	}
	if n.announced == nil {
		n.announced = map[uint64]uint64{}
	}
	if _, ok := n.announced[hash]; ok || len(n.announced) < maxNeeds {
		n.announced[hash] = when
	}
}

// found notes that a range is kept.
func (n *needs) found(g *group, k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.announced) == 0 {
		return
	}
	hash := k.hash()
	when, ok := n.announced[hash]
	delete(n.announced, hash)
	if !ok || len(n.kept.all) >= maxNeeds {
		return
	}
	if n.kept.index == nil {
		n.kept.index = map[uint64]int32{}
	}
	r := keptRange{hash: hash, when: when, off: k.off, n: uint32(k.n), bucket: k.bucket(), group: g}
	copy(r.id[:], k.id[:])
	heap.Push(&n.kept, r)
}

// missed takes a range out of those kept: its file is gone, by another process's hand. What was announced stays.
func (n *needs) missed(k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.kept.index[k.hash()]; ok {
		r := heap.Remove(&n.kept, int(i)).(keptRange)
		if n.announced == nil {
			n.announced = map[uint64]uint64{}
		}
		n.announced[r.hash] = r.when
	}
}

// refused forgets what was announced of a range that was read and not kept.
func (n *needs) refused(k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.announced, k.hash())
}

// when is when a range is needed, math.MaxUint64 if that is not known.
func (n *needs) when(k key) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if when, ok := n.announced[k.hash()]; ok {
		return when
	}
	return math.MaxUint64
}

// later reports whether a range is kept that is needed later than when.
func (n *needs) later(when uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.kept.all) > 0 && n.kept.all[0].when > when
}

// takeLater takes the range needed last out of those kept, if it is needed later than when, and returns its file.
func (n *needs) takeLater(when uint64) (name string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept.all) == 0 || n.kept.all[0].when <= when {
		return "", false
	}
	r := heap.Pop(&n.kept).(keptRange)
	return pieceName(r.group, r.bucket, r.id[:], r.off, int64(r.n)), true
}

// hash tells ranges apart where a mistake means no more than a choice that is not the best.
func (k key) hash() uint64 {
	// The identity is a hash already; the range is spread by Fibonacci hashing.
	h := binary.LittleEndian.Uint64(k.id[:]) ^ (uint64(k.off)+uint64(k.n)<<40)*0x9e3779b97f4a7c15
	return h ^ h>>32
}
