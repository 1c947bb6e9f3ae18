package curate

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
)

// record is a key by two hashes, with a value: a weight, or the number of a sample. Records ascend
// by hash, then check, then value.
type record struct{ hash, check, value uint64 }

const recordLen = 24

func (r record) compare(o record) int {
	switch { // nearly always the first: hashes are uniform
	case r.hash < o.hash:
		return -1
	case r.hash > o.hash:
		return 1
	}
	return cmp.Or(cmp.Compare(r.check, o.check), cmp.Compare(r.value, o.value))
}

// sorter sorts records that may not fit in memory: runs of them are sorted while more are added,
// and beyond a limit kept in a temporary file. It is for one goroutine.
type sorter struct {
	temp    string
	limit   int // records of all runs in memory
	run     []record
	sorting sync.WaitGroup
	runs    [][]record // in memory
	held    int        // records in them
	file    *os.File
	spilled []stretch
	size    int64
}

// stretch is a run in the file.
type stretch struct{ off, records int64 }

func newSorter(temp string, memory int64) *sorter {
	// One run is filled while the others are sorted.
	return &sorter{temp: temp, limit: int(max(memory/recordLen, 4096))}
}

func (s *sorter) add(r record) error {
	if s.run == nil {
		s.run = make([]record, 0, max(s.limit/4, 1024))
	}
	s.run = append(s.run, r)
	if len(s.run) < cap(s.run) {
		return nil
	}
	return s.end()
}

// end begins to sort the current run.
func (s *sorter) end() error {
	if len(s.run) == 0 {
		return nil
	}
	if s.held+2*len(s.run) > s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	run := s.run
	s.runs, s.held, s.run = append(s.runs, run), s.held+len(run), nil
	s.sorting.Go(func() { slices.SortFunc(run, record.compare) })
	return nil
}

// spill writes the runs in memory to the file.
func (s *sorter) spill() error {
	s.sorting.Wait()
	if s.file == nil {
		f, err := os.CreateTemp(s.temp, "shardtool-keys-*")
		if err != nil {
			return fmt.Errorf("curate: sorting keys needs a temporary file (TMPDIR names its folder): %w", err)
		}
		_ = os.Remove(f.Name()) // nobody else needs the name; where this fails, close removes it
		s.file = f
	}
	w := bufio.NewWriterSize(s.file, 1<<20)
	var buf [recordLen]byte
	for _, run := range s.runs {
		for _, r := range run {
			binary.LittleEndian.PutUint64(buf[:], r.hash)
			binary.LittleEndian.PutUint64(buf[8:], r.check)
			binary.LittleEndian.PutUint64(buf[16:], r.value)
			_, _ = w.Write(buf[:]) // the first failure sticks until Flush
		}
		s.spilled = append(s.spilled, stretch{s.size, int64(len(run))})
		s.size += int64(len(run)) * recordLen
	}
	s.runs, s.held = nil, 0
	if err := w.Flush(); err != nil {
		return fmt.Errorf("curate: writing a temporary file for sorting keys: %w", err)
	}
	return nil
}

// all yields the records in order. None may be added any more.
func (s *sorter) all() iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		if err := s.end(); err != nil {
			yield(record{}, err)
			return
		}
		s.sorting.Wait()
		var h []cursor
		for _, run := range s.runs {
			h = append(h, cursor{rest: run})
		}
		for _, at := range s.spilled {
			size := max(4<<10, min(1<<20, s.limit*recordLen/len(s.spilled)))
			h = append(h, cursor{from: bufio.NewReaderSize(io.NewSectionReader(s.file, at.off, at.records*recordLen), size), left: at.records})
		}
		for i := range h {
			if !h[i].next() { // no run is empty
				yield(record{}, h[i].err)
				return
			}
		}
		for i := len(h)/2 - 1; i >= 0; i-- {
			down(h, i)
		}
		for len(h) > 0 {
			if !yield(h[0].at, nil) {
				return
			}
			if !h[0].next() {
				if h[0].err != nil {
					yield(record{}, h[0].err)
					return
				}
				h[0] = h[len(h)-1]
				h = h[:len(h)-1]
			}
			down(h, 0)
		}
	}
}

// cursor reads one run, in memory or in the file.
type cursor struct {
	at   record
	rest []record
	from *bufio.Reader
	left int64
	err  error
}

func (c *cursor) next() bool {
	if c.from == nil {
		if len(c.rest) == 0 {
			return false
		}
		c.at, c.rest = c.rest[0], c.rest[1:]
		return true
	}
	if c.left == 0 {
		return false
	}
	c.left--
	var buf [recordLen]byte
	if _, err := io.ReadFull(c.from, buf[:]); err != nil {
		c.err = fmt.Errorf("curate: temporary file for sorting keys: %w", err)
		return false
	}
	c.at = record{binary.LittleEndian.Uint64(buf[:]), binary.LittleEndian.Uint64(buf[8:]), binary.LittleEndian.Uint64(buf[16:])}
	return true
}

// down restores the heap below i.
func down(h []cursor, i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].at.compare(h[least].at) < 0 {
				least = k
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// close frees memory and the temporary file.
func (s *sorter) close() error {
	s.sorting.Wait()
	s.run, s.runs = nil, nil
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if rerr := os.Remove(s.file.Name()); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = cmp.Or(err, rerr)
	}
	s.file = nil
	return err
}
