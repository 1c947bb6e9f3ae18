package serve

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/extent"
)

// pageSize divides the size of every region.
const pageSize = 4096

// ring is the memory that batches travel in: segments, each a file of memory mapped by both ends,
// from which regions are taken and to which they come back in any order. It grows up to a bound. It
// is safe for concurrent use.
//
// Pages are allocated before they are first written. A write without memory behind it would be a
// fault that ends the process. The lowest place that fits is taken first, so that a consumer that
// keeps up gets the same few pages, warm in its processor's cache, again and again.
type ring struct {
	// announce passes a new segment on; retired says that one is gone. Both are called in order, with
	// the ring locked.
	announce func(number uint32, fd int, size int) error
	retired  func(number uint32) error
	memory   memory

	mu       sync.Mutex
	bound    int
	total    int // bytes of all segments
	out      int // regions in use
	segments []*segment
	next     uint32
	freed    chan struct{} // closed when something comes back; nil while nobody waits
}

// segment is one segment of a ring.
type segment struct {
	number uint32
	file   *os.File
	data   []byte
	backed int // bytes from the beginning on that have memory
	free   extent.List
	used   map[uint64]int // lengths of regions, by offset
}

func newRing(announce func(uint32, int, int) error, retired func(uint32) error) *ring {
	return &ring{announce: announce, retired: retired, memory: system()}
}

// limit sets the bound, in bytes of all segments. Segments that exist already stay.
func (r *ring) limit(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound = bytes
}

// get takes a region of at least n bytes. ok is false when there is no room now; when nothing is in
// use, there never will be.
func (r *ring) get(n int) (reg region, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(align(max(n, 1), pageSize))
}

// getAlone is get with a bound that n does not exceed. ok is false when something is in use.
func (r *ring) getAlone(n int) (reg region, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out > 0 {
		return region{}, false, nil
	}
	n = align(n, pageSize)
	defer func(was int) { r.bound = was }(r.bound)
	r.bound = max(r.bound, n)
	return r.find(n)
}

func (r *ring) find(n int) (reg region, ok bool, err error) {
	for _, s := range r.segments {
		if at, ok := s.get(n); ok {
			return r.take(s, at, n)
		}
	}
	s, err := r.grow(n)
	if s == nil || err != nil {
		return region{}, false, err
	}
	at, _ := s.get(n)
	return r.take(s, at, n)
}

// take returns the region of n bytes that a segment gave, with memory behind it.
func (r *ring) take(s *segment, at, n int) (reg region, ok bool, err error) {
	if err := r.fill(s, at+n); err != nil {
		s.put(uint64(at))
		return region{}, false, err
	}
	r.out++
	return region{s.number, uint64(at), s.data[at : at+n : at+n]}, true, nil
}

// fill gives a segment memory up to an offset, and somewhat beyond.
func (r *ring) fill(s *segment, to int) error {
	if to <= s.backed {
		return nil
	}
	const least, most = 1 << 20, 64 << 20 // of one call, because a signal undoes a call
	for to = min(align(to, least), len(s.data)); s.backed < to; {
		n := min(to-s.backed, most)
		err := r.memory.back(s.file, int64(s.backed), int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return r.noMemory(err)
		}
		s.backed += n
	}
	return nil
}

// noMemory returns the error of a system that has no memory left for a batch.
func (r *ring) noMemory(err error) error {
	has := 0
	for _, s := range r.segments {
		has += s.backed
	}
	return fmt.Errorf("the system gives no memory for another batch, batches have %d bytes so far: %w: make batches smaller, prefetch fewer or let"+
		" go of them sooner, lower memory or shuffle_memory, or give the job more", has, err)
}

// grow adds a segment that has room for n bytes, if the bound allows. Each is as large as all
// before it together, so that there are few.
func (r *ring) grow(n int) (*segment, error) {
	for i := 0; r.bound-r.total < n && i < len(r.segments); {
		if s := r.segments[i]; len(s.used) > 0 {
			i++
		} else if err := r.retire(i, s); err != nil {
			return nil, err
		}
	}
	room := r.bound - r.total
	if room < n {
		return nil, nil
	}
	const least = 8 << 20
	size := align(min(max(4*n, r.total, least), room), pageSize)
	if size > room {
		size = n // the bound is no multiple of a page
	}
	s, err := r.newSegment(size)
	if err != nil {
		return nil, err
	}
	if err := r.announce(s.number, int(s.file.Fd()), size); err != nil {
		_ = s.close()
		return nil, err
	}
	r.next++
	r.total += size
	r.segments = append(r.segments, s)
	return s, nil
}

// retire takes away a segment without regions.
func (r *ring) retire(i int, s *segment) error {
	r.total -= len(s.data)
	r.segments = slices.Delete(r.segments, i, i+1)
	if err := s.close(); err != nil {
		return fmt.Errorf("unmap a segment: %w", err)
	}
	return r.retired(s.number)
}

// release gives a region back. The parent names it, so it may not exist.
func (r *ring) release(number uint32, offset uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.segments, func(s *segment) bool { return s.number == number })
	if i < 0 || !r.segments[i].put(offset) {
		return protocolError(fmt.Sprintf("a RELEASE of %d in segment %d, which is not in use", offset, number))
	}
	r.out--
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
	return nil
}

// wait tells whether nothing is in use, and returns a channel that is closed at the next release.
// Ask before get: a release between the two is then not missed.
func (r *ring) wait() (idle bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.out == 0, r.freed
}

// close unmaps everything. Nobody may write to regions any more.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.segments {
		_ = s.close()
	}
	r.segments = nil
}

// close unmaps a segment. Its memory is free when the parent has done so, too.
func (s *segment) close() error {
	s.file.Close()
	return unix.Munmap(s.data)
}

// newSegment makes the next segment and maps it.
func (r *ring) newSegment(size int) (*segment, error) {
	f, err := r.memory.file(size)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of shared memory: %w", size, err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%d bytes of shared memory: %w", size, os.NewSyscallError("mmap", err))
	}
	return &segment{number: r.next, file: f, data: data, free: extent.List{{At: 0, Size: size}},
		used: map[uint64]int{}}, nil
}

// get takes the first extent that is large enough.
func (s *segment) get(n int) (at int, ok bool) {
	if at, ok = s.free.Take(n); ok {
		s.used[uint64(at)] = n
	}
	return at, ok
}

// put gives back what get took at an offset.
func (s *segment) put(offset uint64) bool {
	n, ok := s.used[offset]
	if ok {
		delete(s.used, offset)
		s.free.Put(int(offset), n)
	}
	return ok
}

// signal leaves a token for whoever looks next, unless there is one.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
