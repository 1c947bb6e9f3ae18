package serve

import (
	"encoding/binary"
	"fmt"

	"github.com/shardtool/shardtool/reader"
)

// Sizes of the tables in a batch's region.
const (
	headerSize = 128
	rowSize    = 64
	pairSize   = 16
	originSize = 8
	dataAlign  = 64
)

// parcel is a batch that will be written to a region. It knows what goes where.
type parcel struct {
	batch      *reader.Batch
	columns    *columns
	units      *unitColumns // nil where positions hold samples
	micro      int          // micro-batches; the beginnings of several are a column
	checkpoint []byte
	ledger     []byte // nil: as it was
	account    []byte

	accountSize int

	size                                       int
	numbers, keys, rows, text, keysBytes, told int // offsets; told is the offset of the account
	seeds, origins                             int

	places  []place
	keyText []byte // of all keys
	keyEnds []int  // of each key in keyText
}

// place is where a column lies in the region.
type place struct{ typ, pairs, data, length int }

// plan finds the place of everything.
func (p *parcel) plan() error {
	n := p.batch.Len()
	at := headerSize
	take := func(size, to int) int {
		at = align(at, to)
		from := at
		at += size
		return from
	}
	p.rows = take(rowSize*len(p.columns.made), 8)
	p.numbers = take(8*n, 8)
	p.keys = take(pairSize*n, 8)
	p.places = p.places[:0]
	for i := range p.columns.made {
		pairs := n
		if p.columns.made[i].kind == columnWhole {
			pairs = 0
		}
		p.places = append(p.places, place{pairs: take(pairSize*pairs, 8), typ: take(len(p.columns.made[i].typ), 1)})
	}
	p.seeds = take(8*n, 8)
	p.origins = take(originSize*n, 8)
	p.told = take(p.accountSize, 8)
	p.text = take(len(p.checkpoint)+len(p.ledger), 8)
	p.keyText, p.keyEnds = p.keyText[:0], p.keyEnds[:0]
	for i := range n {
		p.keyText = p.batch.AppendKey(p.keyText, i)
		p.keyEnds = append(p.keyEnds, len(p.keyText))
	}
	p.keysBytes = take(len(p.keyText), 8)
	for i := range p.columns.made {
		length := p.columns.made[i].length()
		if at > maxRegion-length {
			return fmt.Errorf("a batch of more than %d bytes", maxRegion)
		}
		p.places[i].length, p.places[i].data = length, take(length, dataAlign)
	}
	p.size = at
	return nil
}

// length is the bytes of a column's data.
func (m *column) length() int {
	if m.kind == columnWhole {
		return m.whole
	}
	if m.flags&columnFixed != 0 {
		return m.stride * max(len(m.views), m.count)
	}
	to, n := m.align(), 0
	for _, v := range m.views {
		n = align(n, to) + len(v)
	}
	return n
}

// align returns the alignment of payloads that are not fixed: they begin at multiples of it.
func (m *column) align() int {
	if m.kind == columnBytes {
		return 1
	}
	return dataAlign
}

// write fills the region.
func (p *parcel) write(dst []byte) error {
	b := p.batch
	le := binary.LittleEndian
	clear(dst[:headerSize])
	le.PutUint64(dst[0:], b.Epoch)
	le.PutUint64(dst[8:], b.Position)
	le.PutUint64(dst[16:], b.NextEpoch)
	le.PutUint64(dst[24:], b.NextPosition)
	le.PutUint32(dst[32:], uint32(b.Global))
	le.PutUint32(dst[36:], uint32(b.First))
	le.PutUint32(dst[40:], uint32(b.Len()))
	le.PutUint32(dst[44:], uint32(b.Holes))
	le.PutUint32(dst[48:], uint32(len(p.columns.made)))
	le.PutUint64(dst[56:], uint64(p.text))
	le.PutUint32(dst[64:], uint32(len(p.checkpoint)))
	le.PutUint32(dst[68:], uint32(len(p.ledger)))
	le.PutUint64(dst[72:], uint64(p.text+len(p.checkpoint)))
	le.PutUint64(dst[80:], uint64(p.numbers))
	le.PutUint64(dst[88:], uint64(p.keys))
	le.PutUint64(dst[96:], uint64(p.rows))
	le.PutUint64(dst[104:], uint64(p.told))
	le.PutUint64(dst[112:], uint64(p.seeds))
	le.PutUint64(dst[120:], uint64(p.origins))
	copy(dst[p.told:], p.account)
	copy(dst[p.text:], p.checkpoint)
	copy(dst[p.text+len(p.checkpoint):], p.ledger)
	copy(dst[p.keysBytes:], p.keyText)
	key := 0
	for i, end := range p.keyEnds {
		of := b.Ref(i)
		le.PutUint64(dst[p.numbers+8*i:], of.Number)
		le.PutUint64(dst[p.seeds+8*i:], b.Seed(i))
		le.PutUint64(dst[p.origins+originSize*i:], uint64(of.Epoch)|uint64(of.Source)<<32)
		putPair(dst[p.keys+pairSize*i:], p.keysBytes+key, end-key)
		key = end
	}
	le.PutUint32(dst[52:], uint32(p.padding()))
	for i := range p.columns.made {
		if err := p.columns.made[i].write(dst, p.rows+rowSize*i, &p.places[i]); err != nil {
			return err
		}
	}
	return nil
}

// padding returns how many rows of the columns only fill the batch: sequences, or samples.
func (p *parcel) padding() (n int) {
	unit := -1
	for i := range p.batch.Len() {
		if !p.batch.Ref(i).Padding {
			continue
		}
		if p.units == nil || p.units.sequences == nil {
			n++
		} else if of := int(p.batch.Cut(i).Unit); of != unit {
			n, unit = n+1, of
		}
	}
	return n
}

// write puts a column's row, pairs and data.
func (m *column) write(dst []byte, row int, at *place) error {
	le := binary.LittleEndian
	r := dst[row : row+rowSize]
	clear(r)
	le.PutUint16(r[0:], m.kind)
	le.PutUint16(r[2:], m.flags)
	le.PutUint32(r[4:], uint32(len(m.typ)))
	le.PutUint64(r[8:], uint64(at.typ))
	le.PutUint64(r[16:], uint64(at.data))
	le.PutUint64(r[24:], uint64(at.length))
	le.PutUint64(r[32:], uint64(at.pairs))
	le.PutUint64(r[40:], uint64(m.stride))
	copy(dst[at.typ:], m.typ)
	if m.kind == columnWhole {
		m.fill(dst[at.data : at.data+at.length])
		return nil
	}
	if m.copyRows != nil {
		return m.writeRows(dst, at)
	}
	to, n := m.align(), at.data
	fixed := m.flags&columnFixed != 0
	for i, v := range m.views {
		pair := dst[at.pairs+pairSize*i:]
		if fixed {
			n = at.data + m.stride*i
		} else {
			n = align(n, to)
		}
		if v == nil {
			putPair(pair, n, absent)
			if fixed {
				clear(dst[n : n+m.stride]) // of a sample that lacks the field
			}
			continue
		}
		putPair(pair, n, len(v))
		n += copy(dst[n:], v)
	}
	return nil
}
