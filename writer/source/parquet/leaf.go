package parquet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// batch is the number of values that are read at a time.
const batch = 128

// leaf reads the values of one column chunk with their levels. A value is valid until the next one
// is read.
type leaf struct {
	maxDef, maxRep int16
	pages          *pageReader
	rd             file.ColumnChunkReader
	read           func(n int64) (total int64, values int, err error)
	value          func(i int) value // of the batch; byte strings are not nil

	n, at, vat int
	defs, reps [batch]int16
}

// scratch is a pool that the library needs for skipping, which this package does not use.
var scratch = sync.Pool{New: func() any { return memory.NewResizableBuffer(memory.DefaultAllocator) }}

// newLeaf returns a leaf that reads pages.
func newLeaf(col *schema.Column, pages *pageReader) *leaf {
	l := &leaf{maxDef: col.MaxDefinitionLevel(), maxRep: col.MaxRepetitionLevel(), pages: pages}
	l.rd = file.NewColumnReader(col, pages, memory.DefaultAllocator, &scratch)
	switch rd := l.rd.(type) {
	case *file.Int32ColumnChunkReader:
		readInto(l, rd, func(v *int32) value { return value{u: uint64(uint32(*v))} })
	case *file.Int64ColumnChunkReader:
		readInto(l, rd, func(v *int64) value { return value{u: uint64(*v)} })
	case *file.Int96ColumnChunkReader:
		readInto(l, rd, func(v *pq.Int96) value { return value{b: v[:]} })
	case *file.Float32ColumnChunkReader:
		readInto(l, rd, func(v *float32) value { return value{u: uint64(math.Float32bits(*v))} })
	case *file.Float64ColumnChunkReader:
		readInto(l, rd, func(v *float64) value { return value{u: math.Float64bits(*v)} })
	case *file.BooleanColumnChunkReader:
		readInto(l, rd, func(v *bool) (out value) {
			if *v {
				out.u = 1
			}
			return out
		})
	case *file.ByteArrayColumnChunkReader:
		readInto(l, rd, func(v *pq.ByteArray) value {
			if *v == nil {
				return value{b: []byte{}}
			}
			return value{b: *v}
		})
	case *file.FixedLenByteArrayColumnChunkReader:
		readInto(l, rd, func(v *pq.FixedLenByteArray) value { return value{b: *v} })
	}
	return l
}

// fill reads the next batch from one page. Values point into the buffer of that page, which the
// next page reuses. It returns io.EOF at the end of the chunk.
func (l *leaf) fill() error {
	l.n, l.at, l.vat = 0, 0, 0
	if l.pages.inPage == 0 && !l.rd.HasNext() {
		err := cmp.Or(l.pages.err, l.rd.Err())
		switch {
		case err == nil && l.pages.values > 0:
			return errors.New("it ends early")
		case err == nil:
			return io.EOF
		}
		return err
	}
	want := min(batch, l.pages.inPage)
	// after the last value of a page the library asks for the next page, which would overwrite the
	// values of this one
	l.pages.hold = true
	got, values, err := l.read(want)
	l.pages.hold = false
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("a page gave %d of %d values", got, want)
	}
	full := int(want)
	if l.maxDef > 0 {
		full = 0
		for i := range want {
			def, rep := l.defs[i], l.reps[i]
			if def == l.maxDef {
				full++
			}
			if def < 0 || def > l.maxDef || l.maxRep > 0 && (rep < 0 || rep > l.maxRep) {
				return fmt.Errorf("a value has the levels %d and %d, the schema allows %d and %d", def, rep, l.maxDef,
					l.maxRep)
			}
		}
	}
	if values != full {
		return fmt.Errorf("a page gave %d of %d values", values, full)
	}
	l.pages.inPage -= want
	l.n = int(want)
	return nil
}

// readInto makes l.read fill a batch of values of the type of the library's reader, and l.value
// convert them.
func readInto[T any](l *leaf, rd interface {
	ReadBatch(n int64, values []T, defs, reps []int16) (total int64, read int, err error)
}, convert func(*T) value) {
	values := make([]T, batch)
	l.read = func(n int64) (int64, int, error) { return rd.ReadBatch(n, values, l.defs[:], l.reps[:]) }
	l.value = func(i int) value { return convert(&values[i]) }
}

// next returns the next value with its levels. v is valid only if def is the maximum level.
func (l *leaf) next() (rep, def int16, v value, err error) {
	if l.at == l.n {
		if err = l.fill(); err != nil {
			return 0, 0, v, err
		}
	}
	def = l.maxDef
	if l.maxDef > 0 {
		def = l.defs[l.at]
	}
	if l.maxRep > 0 {
		rep = l.reps[l.at]
	}
	l.at++
	if def == l.maxDef {
		v = l.value(l.vat)
		l.vat++
	}
	return rep, def, v, nil
}

// inRow reports whether the next value belongs to the same row as the previous one.
func (l *leaf) inRow() (bool, error) {
	if l.maxRep == 0 {
		return false, nil
	}
	if l.at == l.n {
		if err := l.fill(); err == io.EOF {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return l.reps[l.at] > 0, nil
}

// maxCell is the maximum size of the values of a list or struct in one row, which is assembled in
// memory.
const maxCell = 256 << 20

// entries are the values of a leaf in one row.
type entries struct {
	reps, defs []int16
	nums       []uint64
	ends       []int // ends of byte strings in bytes
	bytes      []byte
	large      bool // larger than maxCell, and therefore incomplete

	at, vat int // positions of the assembly
}

// gather reads the values of the next row.
func (e *entries) gather(l *leaf) error {
	*e = entries{reps: e.reps[:0], defs: e.defs[:0], nums: e.nums[:0], ends: e.ends[:0], bytes: e.bytes[:0]}
	for first := true; ; first = false {
		rep, def, v, err := l.next()
		if err != nil {
			return err
		}
		if first && rep != 0 {
			return errors.New("a row begins in the middle of a list")
		}
		if e.large = e.large || 20*len(e.defs)+len(e.bytes)+len(v.b) > maxCell; !e.large {
			e.reps, e.defs = append(e.reps, rep), append(e.defs, def)
			if def == l.maxDef {
				e.put(v)
			}
		}
		if more, err := l.inRow(); err != nil || !more {
			return err
		}
	}
}

// put adds a value that is not null.
func (e *entries) put(v value) {
	if v.b == nil {
		e.nums = append(e.nums, v.u)
		return
	}
	e.bytes = append(e.bytes, v.b...)
	e.ends = append(e.ends, len(e.bytes))
}

// value returns value number i of those that are not null.
func (e *entries) value(i int) (value, bool) {
	switch {
	case i < len(e.nums):
		return value{u: e.nums[i]}, true
	case i < len(e.ends):
		begin := 0
		if i > 0 {
			begin = e.ends[i-1]
		}
		return value{b: e.bytes[begin:e.ends[i]]}, true
	}
	return value{}, false
}

// appendRaw appends a number in NumPy's representation.
func (s scalar) appendRaw(dst []byte, v value) []byte {
	_, size := s.dtype()
	if s.class == classHalf {
		return append(dst, v.b...)
	}
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], v.u)
	return append(dst, raw[:size]...)
}
