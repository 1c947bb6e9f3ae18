package writer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// Rows of a layer are written to temporary files while they are sorted. A record is the number of
// the row's layout u32, then what is below.

// layerRow is a decoded record. Its slices are valid until the record is.
type layerRow struct {
	layout uint32 // 0: it cannot be stacked
	Sample
}

// appendRow appends the record of a sample, and the places of the payloads that are still to be
// read into it.
func appendRow(dst []byte, s *Sample) ([]byte, []fill) {
	str := func(t string) { dst = append(binary.AppendUvarint(dst, uint64(len(t))), t...) }
	dst = append(dst, 0, 0, 0, 0)
	str(s.Key)
	str(s.Origin)
	str(s.Source)
	dst = binary.AppendUvarint(dst, uint64(s.Row))
	dst = binary.AppendUvarint(dst, uint64(len(s.Attrs)))
	for _, a := range s.Attrs {
		str(a.Name)
		str(a.Label)
		dst = append(dst, byte(a.Kind))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(a.Integer))
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(a.Number))
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Fields)))
	for i := range s.Fields {
		str(s.Fields[i].Name)
		dst = binary.AppendUvarint(dst, uint64(s.Fields[i].size()))
	}
	var fills []fill
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Payload == nil {
			dst = append(dst, f.Data...)
			continue
		}
		fills = append(fills, fill{off: len(dst), size: int(f.Size), from: f.Payload})
		dst = append(dst, make([]byte, f.Size)...)
	}
	return dst, fills
}

// decode reads a record that appendRow wrote.
func (r *layerRow) decode(rec []byte) error {
	src, bad := rec, false
	num := func() uint64 {
		n, k := binary.Uvarint(src)
		if bad = bad || k <= 0; bad {
			return 0
		}
		src = src[k:]
		return n
	}
	take := func(n uint64) []byte {
		if bad = bad || n > uint64(len(src)); bad {
			return make([]byte, min(n, 8)) // an integer of zeros
		}
		out := src[:n:n]
		src = src[n:]
		return out
	}
	str := func() string { return string(take(num())) }
	r.layout = binary.LittleEndian.Uint32(take(4))
	r.Key, r.Origin, r.Source, r.Row = str(), str(), str(), int64(num())
	r.Attrs, r.Fields = r.Attrs[:0], r.Fields[:0]
	for n := num(); n > 0 && !bad; n-- {
		var a format.AttrValue
		a.Name, a.Label = str(), str()
		a.Kind = format.AttrKind(take(1)[0])
		a.Integer = int64(binary.LittleEndian.Uint64(take(8)))
		a.Number = math.Float64frombits(binary.LittleEndian.Uint64(take(8)))
		r.Attrs = append(r.Attrs, a)
	}
	for n := num(); n > 0 && !bad; n-- {
		r.Fields = append(r.Fields, Field{Name: str(), Size: int64(num())})
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		f.Data, f.Size = take(uint64(f.Size)), 0
	}
	if bad || len(src) != 0 {
		return damage.Errorf("a temporary file for sorting has other bytes than were written") // a faulty disk
	}
	return nil
}

// place names the row for a message.
func (r *layerRow) place() string {
	switch {
	case r.Origin != "":
		return fmt.Sprintf("%.1024s", r.Origin)
	case r.Row > 0:
		return fmt.Sprintf("%.1024s, row %d", r.Source, r.Row)
	}
	return fmt.Sprintf("%.1024s", r.Source)
}

// members is the length of the row's members in a block.
func (r *layerRow) members() (n int64) {
	for i := range r.Fields {
		size := r.Fields[i].size()
		n += tarblock.FieldHeaderLen(r.Key, r.Fields[i].Name) + size + tarblock.Padding(size)
	}
	return n
}

// layouts numbers the layouts of rows that can be stacked, from 1.
type layouts []*stacker.Stack

// mostLayouts bounds the layouts that are told apart: rows of a later one are not stacked.
const mostLayouts = 1000

// of returns the number of a row's layout.
func (l *layouts) of(r *layerRow) uint32 {
	for i := range r.Fields {
		if !bytes.HasPrefix(r.Fields[i].Data, []byte("\x93NUMPY")) {
			return 0
		}
	}
	for n, st := range *l {
		if st.Fits(len(r.Fields), func(i int) (string, int64) { return r.Fields[i].Name, r.Fields[i].size() }) != nil {
			continue
		}
		fits := true
		for i := range r.Fields {
			_, err := st.Row(i, r.Fields[i].Data)
			fits = fits && err == nil
		}
		if fits {
			return uint32(n) + 1
		}
	}
	st, err := learn(context.Background(), &r.Sample) // its payloads are in memory
	if err != nil || len(*l) == mostLayouts {
		return 0
	}
	// Files of another length can hold the same array.
	if n := slices.IndexFunc(*l, func(o *stacker.Stack) bool { return o.Layout.Equal(st.Layout) }); n >= 0 {
		return uint32(n) + 1
	}
	*l = append(*l, st)
	return uint32(len(*l))
}

// readRecord reads the length of a record, and the record into buf, or the next one's place.
func readRecord(from *bufio.Reader, buf []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(from)
	if err == nil {
		buf = slices.Grow(buf[:0], int(n))[:n]
		_, err = io.ReadFull(from, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("temporary file for sorting: %w", err)
	}
	return buf, nil
}
