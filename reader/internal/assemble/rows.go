package assemble

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/stacked"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Rows are the samples of a batch of stacked data, as one array for each field. The zero value is
// ready for FillRows. It is used again for another batch once the batch is released.
type Rows struct {
	// Places are the references of the rows in the draft, ascending: without those of holes.
	Places []int32

	at   []block.RowRef // where the rows are in from; empty where they were copied piece by piece
	from [][][]byte     // those of block.Arrays
	of   []*block.Rows
	data [][]byte // by field: the rows, where they were copied
	keys []byte   // of rows that were copied piece by piece, and where each ends
	ends []int
}

// Reset prepares for another batch. What lies idle keeps no block alive.
func (m *Rows) Reset() {
	clear(m.from)
	m.of = nil
	m.Places, m.at, m.keys, m.ends = m.Places[:0], m.at[:0], m.keys[:0], m.ends[:0]
	for f := range m.data {
		m.data[f] = m.data[f][:0]
	}
}

// FillRows waits for the pieces of a draft and finds its rows. Counts has no bytes: they are those
// of the rows.
func (a *Assembler) FillRows(ctx context.Context, d *planner.Draft, m *Rows, l *stacked.Layout) (n Counts, err error) {
	if len(m.data) != len(l.Fields) {
		m.data = make([][]byte, len(l.Fields))
	}
	if d.Copied {
		return a.copyRows(ctx, d, m, l)
	}
	for _, p := range d.Fresh() {
		if err := a.wait(ctx, d, p); err != nil {
			return n, err
		}
		d.Arrays.Add(p.Table, p.First, len(l.Fields))
	}
	m.Places, m.at = slices.Grow(m.Places[:0], len(d.Refs)), slices.Grow(m.at[:0], len(d.Refs))
	m.from, m.of = append(m.from[:0], make([][][]byte, len(l.Fields))...), d.Arrays.Of
	copy(m.from, d.Arrays.Rows)
	for i := range d.Refs {
		r, at := &d.Refs[i], block.Padding
		if !r.Padding {
			ok := d.In[i] >= 0 // else removed
			if ok {
				if at, ok = d.Arrays.Find(int(d.In[i]), r.Block, r.Index, r.Number); !ok {
					if err := a.skip(r, d.Pieces[d.In[i]]); err != nil {
						return n, err
					}
				}
			}
			if !ok {
				n.Skipped++
				continue
			}
			n.Samples++
		}
		m.Places, m.at = append(m.Places, int32(i)), append(m.at, at)
	}
	return n, nil
}

// sized returns a buffer of n bytes, which is the given one if it is large enough.
func sized(buf []byte, n int) []byte { return slices.Grow(buf[:0], n)[:n] }

// skip leaves out a reference whose row was not found, or returns the error that ends the stream.
func (a *Assembler) skip(r *order.Ref, p *window.Piece) error {
	blk := int(r.Block) - p.First
	err := p.Table.RowErr(blk, int(r.Index), r.Number)
	if p.Table.Err(blk) == nil {
		err = format.Place{Shard: p.Job.Shard.Name, Block: p.Job.Block + blk, Offset: -1}.Wrap(err)
	}
	return a.Skip(p, r, err)
}

// copyRows is FillRows for a batch whose pieces need not be in memory together.
func (a *Assembler) copyRows(ctx context.Context, d *planner.Draft, m *Rows, l *stacked.Layout) (n Counts, err error) {
	for f := range l.Fields {
		m.data[f] = sized(m.data[f], len(d.Refs)*int(l.Fields[f].Row()))
	}
	found, rest := a.byPiece(d, &n)
	var keys keyList
	keys.of = make([]part, len(d.Refs))
	failed, failedAt := error(nil), int32(len(d.Refs))
	for u, p := range d.Pieces {
		if err := a.wait(ctx, d, p); err != nil {
			return n, err
		}
		d.Arrays.Add(p.Table, p.First, len(l.Fields))
		for ; len(rest) > 0 && d.In[rest[0]] == int32(u); rest = rest[1:] {
			i := rest[0]
			r := &d.Refs[i]
			at, ok := d.Arrays.Find(u, r.Block, r.Index, r.Number)
			if !ok {
				n.Skipped++
				if err := a.skip(r, p); err != nil && i < failedAt {
					failed, failedAt = err, i // the error is that of the first sample that has one
				}
				continue
			}
			n.Samples++
			found[i] = true
			keys.add(int(i), d.Arrays.Of[at.Block], int(at.Index))
			for f := range l.Fields {
				stride := int(l.Fields[f].Row())
				copy(m.data[f][int(i)*stride:], d.Arrays.Rows[f][at.Block][int(at.Index)*stride:][:stride])
			}
		}
		a.Window.Gathered(d.Use, p)
	}
	if failed != nil {
		return n, failed
	}
	m.close(d, l, found, &keys)
	return n, nil
}

// byPiece lists the references in the order of their pieces, and counts those of removed samples.
// found has a place for each, which is true for padding.
func (a *Assembler) byPiece(d *planner.Draft, n *Counts) (found []bool, places []int32) {
	found = make([]bool, len(d.Refs))
	a.order = a.order[:0]
	for i := range d.Refs {
		switch {
		case d.In[i] >= 0:
			a.order = append(a.order, int32(i))
		case d.Refs[i].Padding:
			found[i] = true
		default: // removed
			n.Skipped++
		}
	}
	slices.SortStableFunc(a.order, func(x, y int32) int { return int(d.In[x] - d.In[y]) })
	return found, a.order
}

// close moves the rows that were found together, and pads.
func (m *Rows) close(d *planner.Draft, l *stacked.Layout, found []bool, keys *keyList) {
	k := 0
	for i := range found {
		if !found[i] {
			continue
		}
		for f := range l.Fields {
			stride := int(l.Fields[f].Row())
			to, from := m.data[f][k*stride:(k+1)*stride], m.data[f][i*stride:(i+1)*stride]
			if d.Refs[i].Padding {
				clear(to)
			} else if i != k {
				copy(to, from)
			}
		}
		m.Places = append(m.Places, int32(i))
		m.keys = append(m.keys, keys.at(i)...)
		m.ends = append(m.ends, len(m.keys))
		k++
	}
	for f := range l.Fields {
		m.data[f] = m.data[f][:k*int(l.Fields[f].Row())]
	}
}

// keyList is keys in any order.
type keyList struct {
	text []byte
	of   []part
}

type part struct{ from, to int }

func (l *keyList) add(i int, of *block.Rows, index int) {
	from := len(l.text)
	l.text = of.AppendKey(l.text, index)
	l.of[i] = part{from, len(l.text)}
}

func (l *keyList) at(i int) []byte { return l.text[l.of[i].from:l.of[i].to] }

// Make returns the rows of a field, which have stride bytes each. It copies them unless they were.
func (m *Rows) Make(field, stride int) []byte {
	if n := len(m.Places) * stride; len(m.data[field]) != n {
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

// AppendKey appends the key of row i; padding has none.
func (m *Rows) AppendKey(dst []byte, i int) []byte {
	if len(m.at) > 0 {
		if at := m.at[i]; at != block.Padding {
			dst = m.of[at.Block].AppendKey(dst, int(at.Index))
		}
		return dst
	}
	from := 0
	if i > 0 {
		from = m.ends[i-1]
	}
	return append(dst, m.keys[from:m.ends[i]]...)
}
