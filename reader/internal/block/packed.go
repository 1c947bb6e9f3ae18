package block

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Packed is a tar block without its headers: only keys and fields are kept, sample after sample.
//
//	sizes of all fields but the last, 4 bytes each │ key │ field │ field │ …
//
// The bytes of a sample are neighbours. With small samples they are a quarter of the block or less,
// so more samples fit the memory, and fewer cache lines are read when samples are drawn at random.
// Packed implements Samples.
type Packed struct {
	data   []byte
	places []packedPlace // by sample
	shapes []shape
	names  []byte // of the shapes
}

// SizeBytes is how many bytes Packed adds to each field of a sample but the last.
const SizeBytes = 4

// packedPlace is where a sample is. A block has at most MostPacked bytes, and so fewer shapes
// than 1<<16.
type packedPlace struct {
	at, size   uint32 // in Packed.data
	key, shape uint16 // length of the key, place in Packed.shapes
}

// shape is the names of a sample's fields, which most samples of a block share.
type shape []format.FieldView

// shapesTried is how many shapes are compared with a sample. A block whose samples have more of
// them has some shapes twice.
const shapesTried = 8

// MostPacked is the most bytes of a block that a Packer adds. A larger one would have left the
// processor's caches before it is packed.
const MostPacked = 4 << 20

// Packer makes Packed blocks. It is for one goroutine.
type Packer struct{ headers }

// Pack finds the samples of a block of tar members, of at most MostPacked bytes, and keeps them in
// the memory that room returns: n bytes, fewer than the block has. It returns the errors of
// Table.Add. The result belongs to the table, for AddPacked before its next Reset.
func (p *Packer) Pack(t *Table, room func(n int) []byte, decoded []byte, count int, foreign bool) (*Packed, error) {
	defer p.reset()
	from, err := p.walk(decoded, count, foreign)
	if err != nil {
		return nil, err
	}
	b := Take(&t.idlePacked)
	t.packed = append(t.packed, b)
	b.pack(room(from.kept), from)
	return b, nil
}

// AddPacked adds a block, whose first sample has the given number.
func (t *Table) AddPacked(b *Packed, number uint64) {
	t.blocks = append(t.blocks, entry{number: number, samples: b})
}

// Packed returns the block of a sample, for At and Touch. It returns nil if the block is not
// packed, or the sample does not have that number; Sample then returns the error.
func (t *Table) Packed(block, index int, number uint64) *Packed {
	e := &t.blocks[block]
	if b, ok := e.samples.(*Packed); ok && index < len(b.places) && e.number+uint64(index) == number {
		return b
	}
	return nil
}

// pack copies the samples of a block that was walked to dst, which has as many bytes as they need.
func (b *Packed) pack(dst []byte, from *walked) {
	h := from.of
	starts, at := h.starts[from.from:from.from+from.count+1], 0
	b.places = slices.Grow(b.places, from.count)
	for i := range from.count {
		members := h.members[starts[i]:starts[i+1]]
		k := b.shapeOf(from, members)
		begin := at
		for j := range members[:len(members)-1] {
			binary.LittleEndian.PutUint32(dst[at:], uint32(members[j].size))
			at += SizeBytes
		}
		at += copy(dst[at:], from.name(&members[0])[:members[0].key])
		for j := range members {
			m := &members[j]
			at += copy(dst[at:], from.data[m.payload:m.payload+m.size])
		}
		b.places = append(b.places, packedPlace{at: uint32(begin), size: uint32(at - begin), key: members[0].key,
			shape: uint16(k)})
	}
	b.data = dst[:at:at]
}

// shapeOf returns the place of a sample's shape.
func (b *Packed) shapeOf(of *walked, members []member) int {
	for k := len(b.shapes) - 1; k >= max(len(b.shapes)-shapesTried, 0); k-- {
		if b.shapes[k].is(of, members) {
			return k
		}
	}
	n := len(b.shapes)
	if n < cap(b.shapes) {
		b.shapes = b.shapes[:n+1] // with the memory of an earlier shape
	} else {
		b.shapes = append(b.shapes, nil)
	}
	s := b.shapes[n][:0]
	for j := range members {
		begin := len(b.names)
		b.names = append(b.names, members[j].field(of.name(&members[j]))...)
		end := len(b.names)
		s = append(s, format.FieldView{Name: b.names[begin:end:end]}) // which stays when b.names moves
	}
	b.shapes[n] = s
	return n
}

// is reports whether the members have the names of the shape.
func (s shape) is(of *walked, members []member) bool {
	if len(s) != len(members) {
		return false
	}
	for j := range members {
		if !bytes.Equal(s[j].Name, members[j].field(of.name(&members[j]))) {
			return false
		}
	}
	return true
}

// reset forgets the block's memory, which may be freed, and keeps the memory of the tables.
func (b *Packed) reset() {
	b.data, b.places, b.shapes, b.names = nil, b.places[:0], b.shapes[:0], b.names[:0]
}

// Move moves the samples to dst, and returns what is left of it.
func (b *Packed) Move(dst []byte) []byte {
	n := copy(dst, b.data)
	b.data = dst[:n:n]
	return dst[n:]
}

// Len implements Samples.
func (b *Packed) Len() int { return len(b.places) }

// At implements Samples.
func (b *Packed) At(i int, fields []format.FieldView, buf []byte) (key []byte, _ []format.FieldView, _ []byte) {
	p := &b.places[i]
	data := b.data[p.at : p.at+p.size : p.at+p.size]
	s, first := b.shapes[p.shape], len(fields)
	fields = append(fields, s...)
	at := SizeBytes * (len(s) - 1)
	sizes := data[:at]
	key = data[at : at+int(p.key) : at+int(p.key)]
	at += int(p.key)
	for j := first; j < len(fields)-1; j++ {
		end := at + int(binary.LittleEndian.Uint32(sizes))
		fields[j].Data = data[at:end:end]
		at, sizes = end, sizes[SizeBytes:]
	}
	fields[len(fields)-1].Data = data[at:]
	return key, fields, buf
}

// Touch returns the first byte of sample i, to have it in the cache before At.
func (b *Packed) Touch(i int) byte { return b.data[b.places[i].at] } // a key has a byte

// TouchPlace returns a byte of the place of sample i, which Touch has to read first.
func (b *Packed) TouchPlace(i int) byte { return byte(b.places[i].key) }
