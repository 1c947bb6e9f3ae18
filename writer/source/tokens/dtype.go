package tokens

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// DType is an integer type of NumPy. The zero value means that it is not set.
type DType uint8

// The types of token ids.
const (
	Uint8 DType = iota + 1
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
)

var typeNames = [...]string{"", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"}

// ParseDType parses a name such as uint16.
func ParseDType(name string) (DType, error) {
	if i := slices.Index(typeNames[:], name); i > 0 {
		return DType(i), nil
	}
	return 0, fmt.Errorf("type %q: use uint8, uint16, uint32, uint64, int8, int16, int32 or int64", name)
}

func (t DType) String() string { return typeNames[t] }

func (t DType) valid() bool { return int(t) < len(typeNames) }

func (t DType) signed() bool { return t >= Int8 }

// size returns the size of an id in bytes.
func (t DType) size() int64 {
	if t.signed() {
		return 1 << (t - Int8)
	}
	return 1 << (t - Uint8)
}

// descrs are the little-endian types as written in a .npy header.
var descrs = [...]string{"", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8"}

func (t DType) descr() string { return descrs[t] }

// limits returns the minimum and maximum id. uint64 has the maximum of int64.
func (t DType) limits() (low, high int64) {
	width := 8 * t.size()
	if t.signed() {
		return math.MinInt64 >> (64 - width), math.MaxInt64 >> (64 - width)
	}
	if t == Uint64 {
		return 0, math.MaxInt64
	}
	return 0, 1<<width - 1
}

func (t DType) fits(id int64) bool {
	low, high := t.limits()
	return id >= low && id <= high
}

// append appends an id that fits.
func (t DType) append(dst []byte, id int64) []byte { return narrow(dst, []int64{id}, t) }

// layout is the representation of ids in a file.
type layout struct {
	DType
	big bool
}

// layoutOf returns the layout, or an error if the array does not hold token ids.
func layoutOf(h *npy.Header) (layout, error) {
	holds := ""
	switch h.Kind {
	case 'i', 'u':
		for t := Uint8; t <= Int64; t++ {
			if t.size() == int64(h.Size) && t.signed() == (h.Kind == 'i') {
				return layout{t, h.Big}, nil
			}
		}
		holds = "integers of an unknown size"
	case 'O':
		holds = "Python objects, which are pickled code and never loaded"
	case 'f', 'c':
		holds = "floating-point numbers"
	case 'b':
		holds = "truth values"
	case 'S', 'U', 'a', 'T':
		holds = "text"
	case 0:
		holds = "records"
	default:
		holds = "no numbers"
	}
	return layout{}, fmt.Errorf("its elements (%.40s) are %s, not token ids: save integers, as np.save(name, np.asarray(ids, dtype=np.uint16))", h.Descr, holds)
}

// misfit is the error of an id that a type cannot hold.
type misfit struct {
	at int64 // position, from 0
	id string
	to DType
}

func (m *misfit) Error() string {
	return fmt.Sprintf("token %d is %s, which %v has no room for: take a wider type", m.at, m.id, m.to)
}

func (m *misfit) Unwrap() error { return ErrRange }

// sure reports whether every id fits without a check.
func (l layout) sure(to DType) bool {
	low, high := to.limits()
	least, most := l.limits()
	return least >= low && most <= high && (l.DType != Uint64 || to == Uint64)
}

// convert appends the ids in src as type to. The error of the first one that does not fit is a
// *misfit with its position in src.
func convert(dst, src []byte, from layout, to DType) ([]byte, error) {
	if from.DType == to && (!from.big || to.size() == 1) {
		return append(dst, src...), nil
	}
	var ids [512]int64
	size := int(from.size())
	low, high := to.limits()
	sure := from.sure(to)
	for at := 0; at < len(src); {
		n := min(len(ids), (len(src)-at)/size)
		if n == 0 {
			panic("tokens: part of an id") // callers pass whole ids
		}
		widen(ids[:n], src[at:at+n*size], from)
		if !sure {
			for i, id := range ids[:n] {
				if id < low || id > high || from.DType == Uint64 && id < 0 {
					text := strconv.FormatInt(id, 10)
					if from.DType == Uint64 {
						text = strconv.FormatUint(uint64(id), 10)
					}
					return dst, &misfit{at: int64(at/size + i), id: text, to: to}
				}
			}
		}
		dst = narrow(dst, ids[:n], to)
		at += n * size
	}
	return dst, nil
}

// widen decodes ids. Ids of type uint64 keep their bits.
func widen(ids []int64, src []byte, from layout) {
	signed, big := from.signed(), from.big
	switch from.size() {
	case 1:
		for i := range ids {
			if ids[i] = int64(src[i]); signed {
				ids[i] = int64(int8(src[i]))
			}
		}
	case 2:
		for i := range ids {
			v := binary.LittleEndian.Uint16(src[2*i:])
			if big {
				v = bits.ReverseBytes16(v)
			}
			if ids[i] = int64(v); signed {
				ids[i] = int64(int16(v))
			}
		}
	case 4:
		for i := range ids {
			v := binary.LittleEndian.Uint32(src[4*i:])
			if big {
				v = bits.ReverseBytes32(v)
			}
			if ids[i] = int64(v); signed {
				ids[i] = int64(int32(v))
			}
		}
	default:
		for i := range ids {
			v := binary.LittleEndian.Uint64(src[8*i:])
			if big {
				v = bits.ReverseBytes64(v)
			}
			ids[i] = int64(v)
		}
	}
}

// narrow appends ids that fit.
func narrow(dst []byte, ids []int64, to DType) []byte {
	switch to.size() {
	case 1:
		for _, id := range ids {
			dst = append(dst, byte(id))
		}
	case 2:
		for _, id := range ids {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
		}
	case 4:
		for _, id := range ids {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
		}
	default:
		for _, id := range ids {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(id))
		}
	}
	return dst
}

// sizeOf returns the size of an array. ok is false if it is larger than any file.
func sizeOf(shape []int64, size int64) (int64, bool) {
	if slices.Contains(shape, 0) {
		return 0, true
	}
	for _, d := range shape {
		high, low := bits.Mul64(uint64(size), uint64(d))
		if high > 0 || low > 1<<62 {
			return 0, false
		}
		size = int64(low)
	}
	return size, true
}

func shapeText(shape []int64) string {
	text := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(shape[:min(len(shape), 8)]), "[]")), ", ")
	if len(shape) == 1 {
		text += ","
	}
	return "(" + text + ")"
}
