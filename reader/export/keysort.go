package export

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
)

// sortBytes is how many bytes of keys are in memory; more are sorted in parts of this size.
const sortBytes = 32 << 20

// keyRow is a key and the number of its row.
type keyRow struct {
	key string
	row int64
}

func (k keyRow) compare(o keyRow) int {
	return cmp.Or(cmp.Compare(k.key, o.key), cmp.Compare(k.row, o.row))
}

// keySorter sorts keys in bounded memory: by parts, in a temporary file.
type keySorter struct {
	keys  []keyRow
	bytes int
	limit int // 0: sortBytes
	f     *os.File
	ends  []int64 // of the parts in the file
}

func (s *keySorter) add(key string, row int64) error {
	s.keys = append(s.keys, keyRow{key, row})
	if s.bytes += len(key) + 24; s.bytes < cmp.Or(s.limit, sortBytes) {
		return nil
	}
	return s.spill()
}

// spill writes the keys in memory as a sorted part.
func (s *keySorter) spill() (err error) {
	if s.f == nil {
		if s.f, err = temporary(); err != nil {
			return err
		}
	}
	slices.SortFunc(s.keys, keyRow.compare)
	out := bufio.NewWriterSize(s.f, 1<<20)
	end := int64(0)
	if len(s.ends) > 0 {
		end = s.ends[len(s.ends)-1]
	}
	var buf []byte
	for _, k := range s.keys {
		buf = binary.AppendUvarint(binary.AppendUvarint(buf[:0], uint64(len(k.key))), uint64(k.row))
		n, err := out.Write(append(buf, k.key...))
		if err != nil {
			return err
		}
		end += int64(n)
	}
	s.ends = append(s.ends, end)
	s.keys, s.bytes = s.keys[:0], 0
	return out.Flush()
}

// sorted returns all keys in ascending order.
func (s *keySorter) sorted() iter.Seq2[keyRow, error] {
	return func(yield func(keyRow, error) bool) {
		if s.f == nil {
			slices.SortFunc(s.keys, keyRow.compare)
			for _, k := range s.keys {
				if !yield(k, nil) {
					return
				}
			}
			return
		}
		err := s.spill()
		var parts keyHeap
		from := int64(0)
		for _, end := range s.ends {
			p := &keyPart{in: bufio.NewReaderSize(io.NewSectionReader(s.f, from, end-from), max(4<<10, min(1<<20, sortBytes/len(s.ends))))}
			from = end
			if perr := p.next(); perr == nil {
				parts = append(parts, p)
			} else if !errors.Is(perr, io.EOF) && err == nil {
				err = perr
			}
		}
		if err != nil {
			yield(keyRow{}, err)
			return
		}
		heap.Init(&parts)
		for len(parts) > 0 {
			if !yield(parts[0].keyRow, nil) {
				return
			}
			switch err := parts[0].next(); {
			case err == nil:
				heap.Fix(&parts, 0)
			case errors.Is(err, io.EOF):
				heap.Pop(&parts)
			default:
				yield(keyRow{}, err)
				return
			}
		}
	}
}

func (s *keySorter) close() {
	if s.f != nil {
		s.f.Close()
	}
}

// keyPart is a sorted part, of which the first key was read.
type keyPart struct {
	keyRow
	in *bufio.Reader
}

func (p *keyPart) next() error {
	n, err := binary.ReadUvarint(p.in)
	if err != nil {
		return err
	}
	row, err := binary.ReadUvarint(p.in)
	if err != nil {
		return err
	}
	key := make([]byte, n)
	if _, err := io.ReadFull(p.in, key); err != nil {
		return err
	}
	p.keyRow = keyRow{string(key), int64(row)}
	return nil
}

// keyHeap has the part with the least key first.
type keyHeap []*keyPart

func (h keyHeap) Len() int           { return len(h) }
func (h keyHeap) Less(i, j int) bool { return h[i].compare(h[j].keyRow) < 0 }
func (h keyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *keyHeap) Push(x any)        { *h = append(*h, x.(*keyPart)) }
func (h *keyHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
