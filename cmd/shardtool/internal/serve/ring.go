package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/sys/extent"
)

// pageSize divides the size of every region.
const pageSize = 4096

// ring is the memory that batches travel in: segments, each a file of memory mapped by both ends,
// from which regions are taken and to which they come back in any order. It is safe for concurrent
// use.
//
// A region is filled, and then sent. When the parent has taken it, it belongs to the parent, which
// may keep it for as long as it likes, and gives it back with RELEASE. The bound is on what is
// filled and sent.
//
// Pages are allocated before they are first written. A write without memory behind it would be a
// fault that ends the process. The lowest place that fits is used first, so that a consumer that
// keeps up gets the same few pages, warm in its processor's cache, again and again. What is free
// beyond that gives its memory back to the system, from the highest place on.
type ring struct {
	// announce passes a new segment on; retired says that one is gone. Both are called in order, with
	// the ring locked.
	announce func(number uint32, fd int, size int) error
	retired  func(number uint32) error
	memory   memory

	mu       sync.Mutex
	bound    int
	ahead    int // bytes of regions that are filled or sent
	most     int // the largest ahead since the last call of limit
	used     int // bytes of all regions
	backed   int // bytes that have memory
	segments []*segment
	next     uint32
	freed    chan struct{} // closed when there may be room again; nil while nobody waits
}

// segment is one segment of a ring.
type segment struct {
	number uint32
	file   *os.File
	data   []byte
	pages  []bool // whether each page has memory
	backed int    // bytes that have
	free   extent.List
	used   map[uint64]*region // by offset
}

// region is a piece of a segment that is in use.
type region struct {
	segment uint32
	offset  uint64
	data    []byte
	number  uint64 // of the batch in it
	ahead   bool   // whether the ring counts it: it is filled or sent
}

func newRing(announce func(uint32, int, int) error, retired func(uint32) error) *ring {
	return &ring{announce: announce, retired: retired, memory: system()}
}

// limit sets the bound, in bytes of what is filled and sent.
func (r *ring) limit(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound, r.most = bytes, r.ahead
}

// get takes a region of at least n bytes. It is nil when there is no room now; fits tells whether
// there may be later.
func (r *ring) get(n int) (reg *region, fits bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = align(max(n, 1), pageSize)
	if n > r.bound-r.ahead {
		return nil, n <= r.bound, nil
	}
	reg, err = r.find(n)
	return reg, true, err
}

// getAlone is get without a bound. The region is nil when something else is filled or sent.
func (r *ring) getAlone(n int) (*region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ahead > 0 {
		return nil, nil
	}
	return r.find(align(n, pageSize))
}

func (r *ring) find(n int) (*region, error) {
	for _, s := range r.segments {
		if at, ok := s.free.Take(n); ok {
			return r.use(s, at, n)
		}
	}
	s, err := r.grow(n)
	if err != nil {
		return nil, err
	}
	at, _ := s.free.Take(n)
	return r.use(s, at, n)
}

// use returns the region of n bytes that was free in a segment, with memory behind it.
func (r *ring) use(s *segment, at, n int) (*region, error) {
	if err := r.fill(s, at, at+n); err != nil {
		s.free.Put(at, n)
		return nil, err
	}
	reg := &region{segment: s.number, offset: uint64(at), data: s.data[at : at+n : at+n], ahead: true}
	s.used[reg.offset] = reg
	r.used += n
	r.ahead += n
	r.most = max(r.most, r.ahead)
	return reg, nil
}

// fill gives memory to the pages of a segment that have none.
func (r *ring) fill(s *segment, from, to int) error {
	const most = 64 << 20 // of one call, because a signal undoes a call
	for from < to {
		end := s.run(from, min(to, from+most), false)
		if end == from {
			from = s.run(from, to, true)
			continue
		}
		err := r.memory.back(s.file, int64(from), int64(end-from))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return r.noMemory(to-from, err)
		}
		r.mark(s, from, end, true)
		from = end
	}
	return nil
}

// run returns where the pages from an offset on end that all have memory, or all have none.
func (s *segment) run(from, to int, backed bool) int {
	for from < to && s.pages[from/pageSize] == backed {
		from += pageSize
	}
	return from
}

// mark notes that pages have memory, or have none; it was the other way.
func (r *ring) mark(s *segment, from, to int, backed bool) {
	for at := from; at < to; at += pageSize {
		s.pages[at/pageSize] = backed
	}
	n := to - from
	if !backed {
		n = -n
	}
	s.backed += n
	r.backed += n
}

// noMemory returns the error of a system that has no memory left for a batch.
func (r *ring) noMemory(n int, err error) error {
	return fmt.Errorf("the system gives no memory for another batch, which needs %d bytes: batches that were made ahead"+
		" have %d, and batches that the program keeps %d: %w: keep fewer batches, make them smaller, prefetch fewer,"+
		" lower memory or shuffle_memory, or give the job more",
		n, r.ahead, r.used-r.ahead, err)
}

// grow adds a segment that has room for n bytes. Each is as large as all before it together, up to
// a bound, so that there are few.
func (r *ring) grow(n int) (*segment, error) {
	const least, most = 8 << 20, 256 << 20
	total := 0
	for _, s := range r.segments {
		total += len(s.data)
	}
	s, err := r.newSegment(max(n, min(max(4*n, total, least), most)))
	if err != nil {
		return nil, err
	}
	if err := r.announce(s.number, int(s.file.Fd()), len(s.data)); err != nil {
		_ = s.close()
		return nil, err
	}
	r.next++
	r.segments = append(r.segments, s)
	return s, nil
}

// retire takes away a segment without regions.
func (r *ring) retire(i int) error {
	s := r.segments[i]
	r.segments = slices.Delete(r.segments, i, i+1)
	r.backed -= s.backed
	if err := s.close(); err != nil {
		return fmt.Errorf("unmap a segment: %w", err)
	}
	return r.retired(s.number)
}

// sent appends the region of a batch to a queue of those that were sent.
func (r *ring) sent(queue *[]*region, reg *region, number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg.number = number
	*queue = append(*queue, reg)
}

// take notes that the parent has taken the batches of a queue with lower numbers.
func (r *ring) take(queue *[]*region, below uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, n := r.ahead, 0
	for ; n < len(*queue) && (*queue)[n].number < below; n++ {
		r.leave((*queue)[n])
	}
	if *queue = slices.Delete(*queue, 0, n); r.ahead < was {
		r.wake()
	}
}

// leave takes a region out of the account of what is filled and sent.
func (r *ring) leave(reg *region) {
	if reg.ahead {
		reg.ahead = false
		r.ahead -= len(reg.data)
	}
}

// release gives a region back. The parent names it, so it may not exist.
func (r *ring) release(number uint32, offset uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reg *region
	i := slices.IndexFunc(r.segments, func(s *segment) bool { return s.number == number })
	if i >= 0 {
		reg = r.segments[i].used[offset]
	}
	if reg == nil {
		return protocolError(fmt.Sprintf("a RELEASE of %d in segment %d, which is not in use", offset, number))
	}
	delete(r.segments[i].used, offset)
	r.segments[i].free.Put(int(offset), len(reg.data))
	r.used -= len(reg.data)
	r.leave(reg)
	r.wake()
	const least, step = 8 << 20, 1 << 20 // steps, because trim looks at all free places
	if keep := max(2*r.most, least); r.backed-r.used > keep+step {
		return r.trim(keep)
	}
	return nil
}

// trim gives memory of free places back to the system, so that they have no more than a number of
// bytes: whole segments, and the highest places of others where the system allows it.
func (r *ring) trim(keep int) error {
	for i := len(r.segments) - 1; i >= 0 && r.backed-r.used > keep; i-- {
		s := r.segments[i]
		if len(s.used) == 0 && s.backed <= r.backed-r.used-keep {
			if err := r.retire(i); err != nil {
				return err
			}
			continue
		}
		for k := len(s.free) - 1; k >= 0 && r.memory.drop != nil; k-- {
			r.punch(s, s.free[k], r.backed-r.used-keep)
		}
	}
	return nil
}

// punch gives back up to n bytes of memory of a free place, the highest. What the system refuses
// stays.
func (r *ring) punch(s *segment, free extent.Extent, n int) {
	for end := free.At + free.Size; end > free.At && n > 0; {
		if !s.pages[end/pageSize-1] {
			end -= pageSize
			continue
		}
		from := end
		for from > free.At && end-from < n && s.pages[from/pageSize-1] {
			from -= pageSize
		}
		if r.memory.drop(s.file, int64(from), int64(end-from)) != nil {
			return
		}
		r.mark(s, from, end, false)
		n -= end - from
		end = from
	}
}

// await returns what try gets, once that is a region or an error.
func (r *ring) await(ctx context.Context, try func() (*region, error)) (*region, error) {
	for {
		freed := r.wait()
		if reg, err := try(); reg != nil || err != nil {
			return reg, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// wait returns a channel that is closed when there may be room again. Ask before get: a release
// between the two is then not missed.
func (r *ring) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

func (r *ring) wake() {
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
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
	size = align(size, pageSize)
	f, err := r.memory.file(size)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of shared memory: %w", size, err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%d bytes of shared memory: %w", size, os.NewSyscallError("mmap", err))
	}
	return &segment{number: r.next, file: f, data: data, pages: make([]bool, size/pageSize),
		free: extent.List{{At: 0, Size: size}}, used: map[uint64]*region{}}, nil
}

// signal leaves a token for whoever looks next, unless there is one.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
