// Package keysort sorts records that begin with a hash, such as the entries of a keys table, and
// that may not fit in memory: runs of them are sorted in memory, spilled to a temporary file beside
// the caller, and merged.
//
// A run is distributed by the bytes of the hash instead of compared: hashes are uniform, so two or
// three passes leave groups of a few dozen. That takes 40 ns per entry where comparing records
// takes 400.
package keysort

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/shardtool/shardtool/internal/sys/spill"
)

// Sorter takes entries and returns them in order, any number of times. It is for one goroutine. One
// iterator of All may run at a time.
type Sorter[R Record] struct {
	dir     string
	room    int // entries of a run
	fill    []R
	scratch []R        // used by the goroutine of spilled while it runs
	spilled chan error // result of the run being spilled; nil for none
	spare   []R        // the run being spilled, to fill again
	file    *os.File
	runs    []int // entries of each run in the file, one after the other
	sealed  bool
	err     error
}

const (
	leastRoom = 1 << 10
	mostRoom  = 64 << 20
)

// size returns the length of a record in the file: its numbers, little-endian.
func size[R Record]() int { return 8 * len(numbers(new(R))) }

// New returns a Sorter that holds about limit bytes in memory (at least some 48 KiB, a few GiB at
// most) and spills to a file in dir, or in the system's folder for temporary files if dir is empty.
// The caller must Close it.
func New[R Record](dir string, limit int64) *Sorter[R] {
	const arrays = 3 // one that fills, one being spilled, and the scratch space for sorting it
	return &Sorter[R]{dir: dir, room: int(min(max(limit/int64(arrays*size[R]()), leastRoom), mostRoom))}
}

// Add adds an entry.
func (s *Sorter[R]) Add(e R) error {
	if len(s.fill) == cap(s.fill) && !s.grow() {
		return s.err
	}
	s.fill = append(s.fill, e)
	return nil
}

// grow makes room for one more entry: a longer array, or an empty one after a full run. It returns
// false after an error.
func (s *Sorter[R]) grow() bool {
	if s.sealed && s.err == nil {
		s.err = errors.New("added after reading") // a bug of the caller
	}
	if s.err != nil {
		return false
	}
	if n := len(s.fill); n < s.room {
		longer := make([]R, n, min(max(2*n, leastRoom), s.room))
		copy(longer, s.fill)
		s.fill = longer
		return true
	}
	return s.spill() == nil
}

// spill starts to sort and write the full run. An error of this run is returned by the next call of
// wait.
func (s *Sorter[R]) spill() error {
	if err := s.wait(); err != nil {
		return err
	}
	if s.file == nil {
		if s.file, s.err = spill.Create(s.dir); s.err != nil {
			return s.err
		}
	}
	if s.spare == nil {
		s.spare, s.scratch = make([]R, 0, s.room), make([]R, s.room)
	}
	run, scratch, off := s.fill, s.scratch, s.entries()*int64(size[R]())
	s.fill, s.spare = s.spare[:0], run
	s.runs = append(s.runs, len(run))
	done := make(chan error, 1)
	s.spilled = done
	go func() {
		sortEntries(run, scratch[:len(run)])
		done <- write(s.file, off, run)
	}()
	return nil
}

// wait waits for the run being spilled.
func (s *Sorter[R]) wait() error {
	if s.spilled != nil {
		if err := <-s.spilled; err != nil && s.err == nil {
			s.err = fmt.Errorf("writing a temporary file for sorting: %w", err)
		}
		s.spilled = nil
	}
	return s.err
}

// entries is the number of entries in the file.
func (s *Sorter[R]) entries() (n int64) {
	for _, r := range s.runs {
		n += int64(r)
	}
	return n
}

func write[R Record](f *os.File, off int64, run []R) error {
	buf := make([]byte, 0, 256<<10)
	for i, r := range run {
		for _, n := range numbers(&r) {
			buf = binary.LittleEndian.AppendUint64(buf, n)
		}
		if len(buf)+size[R]() > cap(buf) || i == len(run)-1 {
			n, err := f.WriteAt(buf, off)
			if err != nil {
				return err
			}
			off, buf = off+int64(n), buf[:0]
		}
	}
	return nil
}

// All yields the entries in order. No entry may be added after the first call.
func (s *Sorter[R]) All() iter.Seq2[R, error] {
	if !s.sealed && s.err == nil {
		s.seal()
	}
	return func(yield func(R, error) bool) {
		switch {
		case s.err != nil:
			yield(*new(R), s.err)
		case len(s.runs) > 0:
			s.merge(yield)
		default:
			for _, e := range s.fill {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// seal sorts what was added last.
func (s *Sorter[R]) seal() {
	s.sealed = true
	if len(s.runs) == 0 {
		sortEntries(s.fill, make([]R, len(s.fill)))
	} else {
		if len(s.fill) > 0 && s.spill() != nil {
			return
		}
		_ = s.wait() // sticks
		s.fill, s.spare, s.scratch = nil, nil, nil
	}
	s.fill = s.fill[:len(s.fill):len(s.fill)] // so that Add calls grow
}

// cursor reads a run.
type cursor[R Record] struct {
	now  R
	r    *io.SectionReader
	buf  []byte
	rest []byte // of buf
}

// next returns false at the end of the run.
func (c *cursor[R]) next() (bool, error) {
	if len(c.rest) == 0 {
		left := c.r.Size() - c.at()
		if left == 0 {
			return false, nil
		}
		c.rest = c.buf[:min(int64(len(c.buf)), left)]
		if _, err := io.ReadFull(c.r, c.rest); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return false, fmt.Errorf("temporary file for sorting: %w", err)
		}
	}
	for k, now := 0, numbers(&c.now); k < len(now); k++ {
		now[k] = binary.LittleEndian.Uint64(c.rest[8*k:])
	}
	c.rest = c.rest[size[R]():]
	return true, nil
}

func (c *cursor[R]) at() int64 {
	n, _ := c.r.Seek(0, io.SeekCurrent) // cannot fail
	return n
}

// merge reads all runs at once, each through a buffer of the memory divided by the number of runs,
// 4 KiB to 1 MiB.
func (s *Sorter[R]) merge(yield func(R, error) bool) {
	each := size[R]()
	room := max(4<<10, min(1<<20, s.room*each/len(s.runs))) / each * each
	heap := make([]*cursor[R], 0, len(s.runs)) // the least entry first
	off := int64(0)
	for _, n := range s.runs {
		c := &cursor[R]{r: io.NewSectionReader(s.file, off, int64(n*each)), buf: make([]byte, room)}
		off += int64(n * each)
		if _, err := c.next(); err != nil { // no run is empty
			yield(*new(R), err)
			return
		}
		heap = append(heap, c)
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(heap, i)
	}
	for len(heap) > 0 {
		if !yield(heap[0].now, nil) {
			return
		}
		more, err := heap[0].next()
		if err != nil {
			yield(*new(R), err)
			return
		}
		if !more {
			last := len(heap) - 1
			heap[0] = heap[last]
			heap = heap[:last]
		}
		down(heap, 0)
	}
}

// down restores the heap below i.
func down[R Record](heap []*cursor[R], i int) {
	for {
		least := 2*i + 1
		if least >= len(heap) {
			return
		}
		if right := least + 1; right < len(heap) && less(&heap[right].now, &heap[least].now) {
			least = right
		}
		if !less(&heap[least].now, &heap[i].now) {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// Close frees memory and the temporary file.
func (s *Sorter[R]) Close() error {
	_ = s.wait() // Add or All returned its error
	s.fill, s.spare, s.scratch, s.runs, s.sealed = nil, nil, nil, nil, true
	s.err = errors.New("sorter is closed")
	err := spill.Close(s.file)
	s.file = nil
	return err
}
