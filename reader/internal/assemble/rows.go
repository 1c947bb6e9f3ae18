package assemble

import (
	"slices"

	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// Rows is a batch of stacked data, as one array for each field. It is used again for another batch
// once the batch is released.
type Rows struct {
	Layout *stacked.Layout

	draft *planner.Draft
	at    []block.RowRef // where the rows are in from
	from  [][][]byte     // block.Arrays.Rows
	of    []*block.Rows  // block.Arrays.Of
	data  [][]byte       // by field: the rows, once they were copied
	// In place of at, where the draft is copied: keys, and which of them rows have.
	text []byte
	keys []part
}

// part is a part of a text.
type part struct{ from, to int }

// Reset prepares for another batch. Idle memory keeps no block alive.
func (m *Rows) Reset() {
	clear(m.from)
	m.of = nil
	m.at, m.text, m.keys = m.at[:0], m.text[:0], m.keys[:0]
	for f := range m.data {
		m.data[f] = m.data[f][:0]
	}
}

// sized returns a slice of n elements, which is the given one if it is large enough.
func sized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// stride returns the length of a row.
func (m *Rows) stride(field int) int { return int(m.Layout.Fields[field].Row()) }

func (m *Rows) begin(d *planner.Draft, _ *window.Window) {
	n := len(d.Refs)
	m.draft = d
	if len(m.data) != len(m.Layout.Fields) {
		m.data = make([][]byte, len(m.Layout.Fields))
	}
	if !d.Copied {
		m.at = sized(m.at, n)
		return
	}
	m.keys = sized(m.keys, n)
	for f := range m.data {
		m.data[f] = sized(m.data[f], n*m.stride(f))
	}
}

// row returns the row of a place, where the draft is copied.
func (m *Rows) row(field, place int) []byte {
	stride := m.stride(field)
	return m.data[field][place*stride:][:stride]
}

func (m *Rows) land(p *window.Piece) { m.draft.Arrays.Add(p.Table, p.First, len(m.Layout.Fields)) }

func (m *Rows) find(level int, places []int32) (n int, err error) {
	d, to := m.draft, m.at
	refs, in, arrays := d.Refs, d.In[level], &d.Arrays
	for n, i := range places {
		r := &refs[i]
		at, ok := arrays.Find(int(in[i]), r.Block, r.Index, r.Number)
		switch {
		case !ok:
			p := d.Pieces[in[i]]
			return n, p.Table.RowErr(int(r.Block)-p.First, int(r.Index), r.Number)
		case len(to) > 0:
			to[i] = at
		default:
			m.copy(int(i), at)
		}
	}
	return len(places), nil
}

// copy moves a row and its key to memory of the batch.
func (m *Rows) copy(place int, at block.RowRef) {
	from := len(m.text)
	m.text = m.draft.Arrays.Of[at.Block].AppendKey(m.text, int(at.Index))
	m.keys[place] = part{from, len(m.text)}
	for f := range m.data {
		copy(m.row(f, place), m.draft.Arrays.Rows[f][at.Block][int(at.Index)*m.stride(f):])
	}
}

// move moves a copied row to a place before it.
func (m *Rows) move(to, from int) {
	m.keys[to] = m.keys[from]
	for f := range m.data {
		copy(m.row(f, to), m.row(f, from))
	}
}

func (m *Rows) close(h *Held) {
	d, n := m.draft, h.Len()
	m.draft = nil
	h.Bytes = int64(h.Samples) * m.Size()
	if h.Holes > 0 {
		for k := range n {
			if i := h.Place(k); d.Copied {
				m.move(k, i)
			} else {
				m.at[k] = m.at[i]
			}
		}
	}
	if d.Copied {
		m.keys = m.keys[:n]
		for f := range m.data {
			m.data[f] = m.data[f][:n*m.stride(f)]
		}
		return
	}
	m.at, m.of = m.at[:n], d.Arrays.Of
	m.from = append(m.from[:0], make([][][]byte, len(m.data))...)
	copy(m.from, d.Arrays.Rows)
}

// Size returns the length of the fields of a row as a sample.
func (m *Rows) Size() (n int64) {
	for f := range m.Layout.Fields {
		n += m.Layout.Fields[f].Size()
	}
	return n
}

// Make returns the rows of a field. The first call copies them.
func (m *Rows) Make(field int) []byte {
	if n := (len(m.at) + len(m.keys)) * m.stride(field); len(m.data[field]) != n {
		m.data[field] = sized(m.data[field], n)
		block.Gather(m.data[field], m.from[field], m.at)
	}
	return m.data[field]
}

// Copy copies the rows of a field to dst, which has room for exactly these.
func (m *Rows) Copy(dst []byte, field int) {
	if len(m.data[field]) == len(dst) {
		copy(dst, m.data[field])
		return
	}
	block.Gather(dst, m.from[field], m.at)
}

// AppendKey appends the key of row i.
func (m *Rows) AppendKey(dst []byte, i int) []byte {
	if len(m.keys) > 0 {
		return append(dst, m.text[m.keys[i].from:m.keys[i].to]...)
	}
	return m.of[m.at[i].Block].AppendKey(dst, int(m.at[i].Index))
}
