// Package extsort sorts byte records that may not fit in memory: runs of them are sorted in memory
// and spilled to a temporary file, then merged. Order is bytes.Compare of whole records, so a
// record begins with its sort key.
package extsort

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/shardtool/shardtool/internal/sys/spill"
)

// Sorter takes records and returns them in order, any number of times. It is for one goroutine. One
// iterator of All may run at a time.
type Sorter struct {
	dir    string
	limit  int
	arena  []byte
	spans  []span
	file   *os.File
	runs   []run
	count  int64
	sealed bool
	err    error
}

// span is where a record is. head is its first bytes as a number, which orders nearly all of them
// without a look at the records.
type span struct {
	head   uint64
	off, n uint32
}

func headOf(rec []byte) uint64 {
	var head [8]byte
	copy(head[:], rec)
	return binary.BigEndian.Uint64(head[:])
}

// run is a sorted part of the file: n bytes with that many records.
type run struct{ off, n, records int64 }

const spanLen = 16

// New returns a Sorter that holds up to limit bytes in memory (1 MiB to 1 GiB) and spills to a file
// in dir, or in the system's folder for temporary files if dir is empty.
func New(dir string, limit int64) *Sorter {
	return &Sorter{dir: dir, limit: int(min(max(limit, 1<<20), 1<<30))}
}

// Add adds a record. The caller may reuse rec.
func (s *Sorter) Add(rec []byte) error {
	if s.err != nil {
		return s.err
	}
	if len(s.arena)+len(rec)+(len(s.spans)+1)*spanLen > s.limit && len(s.spans) > 0 {
		if s.err = s.spill(); s.err != nil {
			return s.err
		}
	}
	s.spans = append(s.spans, span{headOf(rec), uint32(len(s.arena)), uint32(len(rec))})
	s.arena = append(s.arena, rec...)
	s.count++
	return nil
}

// Len returns the number of records.
func (s *Sorter) Len() int64 { return s.count }

// Spilled returns the number of bytes in the temporary file.
func (s *Sorter) Spilled() (n int64) {
	for _, r := range s.runs {
		n += r.n
	}
	return n
}

func (s *Sorter) sort() {
	slices.SortFunc(s.spans, func(a, b span) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return bytes.Compare(s.record(a), s.record(b))
	})
}

func (s *Sorter) record(p span) []byte { return s.arena[p.off : p.off+p.n] }

func (s *Sorter) spill() error {
	if s.file == nil {
		f, err := spill.Create(s.dir)
		if err != nil {
			return err
		}
		s.file = f
	}
	s.sort()
	begin := s.Spilled()
	w := bufio.NewWriterSize(&offsetWriter{s.file, begin}, 256<<10)
	var head [binary.MaxVarintLen64]byte
	n := int64(0)
	for _, p := range s.spans {
		h := binary.PutUvarint(head[:], uint64(p.n))
		_, _ = w.Write(head[:h]) // the first failure sticks until Flush
		_, _ = w.Write(s.record(p))
		n += int64(h) + int64(p.n)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing a temporary file for sorting: %w", err)
	}
	s.runs = append(s.runs, run{begin, n, int64(len(s.spans))})
	s.arena, s.spans = s.arena[:0], s.spans[:0]
	return nil
}

type offsetWriter struct {
	f  *os.File
	at int64
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}

// All yields the records in order. A record is valid until the next one. No record may be added
// after the first call.
func (s *Sorter) All() iter.Seq2[[]byte, error] {
	if !s.sealed && s.err == nil {
		s.sealed = true
		if len(s.runs) > 0 && len(s.spans) > 0 {
			s.err = s.spill()
		}
		if len(s.runs) > 0 {
			s.arena, s.spans = nil, nil
		}
		s.sort()
	}
	return func(yield func([]byte, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		if len(s.runs) == 0 {
			for _, p := range s.spans {
				if !yield(s.record(p), nil) {
					return
				}
			}
			return
		}
		s.merge(yield)
	}
}

// cursor reads one run.
type cursor struct {
	r    *bufio.Reader
	left int64 // records
	rec  []byte
}

// next returns false at the end of the run.
func (c *cursor) next() (bool, error) {
	if c.left == 0 {
		return false, nil
	}
	c.left--
	n, err := binary.ReadUvarint(c.r)
	if err != nil {
		return false, cut(err)
	}
	if uint64(cap(c.rec)) < n {
		c.rec = make([]byte, n)
	}
	c.rec = c.rec[:n]
	if _, err = io.ReadFull(c.r, c.rec); err != nil {
		return false, cut(err)
	}
	return true, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("temporary file for sorting: %w", err)
}

type cursorHeap []*cursor

func (h cursorHeap) Len() int           { return len(h) }
func (h cursorHeap) Less(i, j int) bool { return bytes.Compare(h[i].rec, h[j].rec) < 0 }
func (h cursorHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *cursorHeap) Push(x any)        { *h = append(*h, x.(*cursor)) }
func (h *cursorHeap) Pop() any {
	c := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return c
}

// merge reads all runs at once, each through a buffer of the limit divided by the number of runs,
// at least 4 KiB. A limit of 64 MiB serves 1 TiB of records: 16,384 runs of 64 MiB, 4 KiB each.
func (s *Sorter) merge(yield func([]byte, error) bool) {
	size := max(4<<10, min(1<<20, s.limit/len(s.runs)))
	h := make(cursorHeap, 0, len(s.runs))
	for _, r := range s.runs {
		c := &cursor{r: bufio.NewReaderSize(io.NewSectionReader(s.file, r.off, r.n), size), left: r.records}
		if _, err := c.next(); err != nil { // no run is empty
			yield(nil, err)
			return
		}
		h = append(h, c)
	}
	heap.Init(&h)
	for len(h) > 0 {
		if !yield(h[0].rec, nil) {
			return
		}
		switch more, err := h[0].next(); {
		case err != nil:
			yield(nil, err)
			return
		case more:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
}

// Close frees memory and the temporary file.
func (s *Sorter) Close() error {
	s.arena, s.spans, s.runs, s.sealed = nil, nil, nil, true
	s.err = errors.New("sorter is closed")
	err := spill.Close(s.file)
	s.file = nil
	return err
}
