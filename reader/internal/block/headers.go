package block

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// headers are the samples of tar blocks, found by walking over the members' headers.
type headers struct {
	walked  []*walked // in use, one for each block
	idle    []*walked
	starts  []uint32 // of each sample its first member; and for each block, where its last sample ends
	members []member
	names   [][]byte // names that do not begin in the header before the payload
}

// walked is a tar block. It implements Samples.
type walked struct {
	of    *headers
	data  []byte
	from  int // its first sample in headers.starts
	count int
	kept  int // bytes of its samples in a Packed
}

// member is a field of a sample.
type member struct {
	payload, size int64  // in the block
	long          int32  // 1 + place of the name in headers.names; 0: the name begins 512 bytes before the payload
	name, key     uint16 // lengths: of the name, and of the key in it
}

// walk finds the samples of a block. It costs one step for each member.
func (h *headers) walk(data []byte, count int, foreign bool) (*walked, error) {
	starts, members, names := len(h.starts), len(h.members), len(h.names)
	b := Take(&h.idle)
	*b = walked{of: h, data: data, from: starts}
	err := h.add(b, count, foreign)
	if err != nil {
		h.starts, h.members, h.names = h.starts[:starts], h.members[:members], h.names[:names]
		*b = walked{}
		h.idle = append(h.idle, b)
		return nil, err
	}
	h.walked = append(h.walked, b)
	return b, nil
}

func (h *headers) add(b *walked, count int, foreign bool) error {
	room := min(count, len(b.data)/512) + 1
	h.starts, h.members = slices.Grow(h.starts, room), slices.Grow(h.members, room)
	walk := tarblock.Walker{Buf: b.data, Foreign: foreign}
	var m tarblock.Member
	var last []byte // key
	for {
		ok, err := walk.Next(&m)
		switch {
		case err != nil:
			return err
		case !ok && b.count != count:
			return fmt.Errorf("%w: %d samples, the tables say %d", format.ErrCorrupt, b.count, count)
		case !ok:
			h.sortLast(b, foreign)
			h.starts = append(h.starts, uint32(len(h.members)))
			return nil
		case len(m.Name) > format.MaxName:
			return fmt.Errorf("%w: a name of %d bytes", format.ErrCorrupt, len(m.Name))
		}
		key := m.Name[:m.Key]
		if b.count == 0 || !bytes.Equal(key, last) {
			h.sortLast(b, foreign)
			h.starts = append(h.starts, uint32(len(h.members)))
			b.count++
			b.kept += len(key) - SizeBytes // the last field has no size
			last = key
		}
		b.kept += SizeBytes + int(m.Size)
		f := member{payload: m.Payload, size: m.Size, name: uint16(len(m.Name)), key: uint16(len(key))}
		if foreign || len(m.Name) > 0 && &m.Name[0] != &b.data[m.Payload-512] {
			h.names = append(h.names, m.Name)
			f.long = int32(len(h.names))
		}
		h.members = append(h.members, f)
	}
}

// sortLast sorts the members of the block's last sample so far by field, where another tool may
// have written them in any order.
func (h *headers) sortLast(b *walked, foreign bool) {
	if !foreign || b.count == 0 {
		return
	}
	members := h.members[h.starts[len(h.starts)-1]:]
	slices.SortFunc(members, func(x, y member) int { return bytes.Compare(h.names[x.long-1], h.names[y.long-1]) })
}

func (h *headers) reset() {
	for _, b := range h.walked {
		*b = walked{} // the block's memory may be freed
	}
	h.idle = append(h.idle, h.walked...)
	clear(h.names)
	h.walked, h.starts, h.members, h.names = h.walked[:0], h.starts[:0], h.members[:0], h.names[:0]
}

// Len implements Samples.
func (b *walked) Len() int { return b.count }

// At implements Samples.
func (b *walked) At(i int, fields []format.FieldView, buf []byte) (key []byte, _ []format.FieldView, _ []byte) {
	h, at := b.of, b.from+i
	members := h.members[h.starts[at]:h.starts[at+1]]
	for j := range members {
		m := &members[j]
		name := b.name(m)
		key = name[:m.key:m.key]
		end := m.payload + m.size
		fields = append(fields, format.FieldView{Name: m.field(name), Data: b.data[m.payload:end:end]})
	}
	return key, fields, buf
}

// name returns the name of a member.
func (b *walked) name(m *member) []byte {
	if m.long == 0 {
		begin := m.payload - 512
		return b.data[begin : begin+int64(m.name) : begin+int64(m.name)]
	}
	return b.of.names[m.long-1]
}

// field returns the field in the name of a member.
func (m *member) field(name []byte) []byte { return name[min(m.key+1, m.name):] }
