package mix

import (
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/reader/order"
)

// unitParts is scratch of a batch of units.
type unitParts struct {
	of     []unitPart // by source
	owners []owner    // of this rank's entries
	cuts   []order.Cut
}

// unitPart holds what one source gives of this rank's part, unit by unit.
type unitPart struct {
	refs []order.Ref
	cuts []order.Cut
	ends []int // of the units, in refs
}

// owner is the source of an entry, and the number of its unit in the source's part.
type owner struct{ source, unit uint32 }

// seekUnits is Seek where positions hold units.
func (p *Plan) seekUnits(position uint64) (*Cursor, error) {
	for s := range p.mix.Sources {
		x := &p.mix.Sources[s]
		if x.line == nil {
			if weighs(p.mix.Segments, s) {
				return nil, &SourceError{x.Name, errLine}
			}
			continue
		}
		params := x.line.Units().Order().Params()
		params.MixBlock = 0
		if params != p.mix.Params(s) {
			return nil, &SourceError{x.Name, fmt.Errorf("the order of its units has %+v, the mix %+v", params,
				p.mix.Params(s))}
		}
	}
	return p.cursor(position, nil)
}

// listUnits appends the units of this rank's entries, each with the references to its samples, and
// moves the sources past the batch.
func (c *Cursor) listUnits(dst []order.Ref, entries int) ([]order.Ref, error) {
	u := &c.units
	if u.of == nil {
		u.of = make([]unitPart, len(c.sources))
	}
	u.cuts = u.cuts[:0]
	u.owners = append(u.owners[:0], make([]owner, entries)...)
	for s := range c.sources {
		if c.after[s] == c.before[s] {
			continue
		}
		if err := c.listUnitsOf(s); err != nil {
			return dst, err
		}
		for k, i := range c.where[s] {
			u.owners[i] = owner{uint32(s), uint32(k)}
		}
	}
	for i, o := range u.owners {
		dst = u.append(dst, o, uint32(i))
	}
	for i := range c.closed {
		c.closed[i].Place = len(u.cuts)
	}
	return dst, nil
}

var errUnits = errors.New("its cursor gave another number of units than the mix asked for")

// listUnitsOf lists the units of source s. Its spans are open for the whole batch.
func (c *Cursor) listUnitsOf(s int) error {
	p := &c.units.of[s]
	refs, b, err := c.next(p.refs[:0], s)
	p.refs, p.cuts, p.ends = refs, b.Cuts, p.ends[:0]
	if err != nil {
		return err
	}
	for i := range p.cuts {
		if i+1 == len(p.cuts) || p.cuts[i+1].Unit != p.cuts[i].Unit {
			p.ends = append(p.ends, i+1)
		}
	}
	if len(p.ends) != len(c.where[s]) {
		return &SourceError{c.plan.mix.Sources[s].Name, errUnits}
	}
	for _, span := range b.Opened {
		span.Source, span.Place = uint16(s), 0
		c.opened = append(c.opened, span)
	}
	for _, span := range b.Closed {
		span.Source = uint16(s)
		c.closed = append(c.closed, span)
	}
	return nil
}

// append appends a unit as entry number i of the part.
func (u *unitParts) append(dst []order.Ref, o owner, i uint32) []order.Ref {
	p := &u.of[o.source]
	from := 0
	if o.unit > 0 {
		from = p.ends[o.unit-1]
	}
	for k := from; k < p.ends[o.unit]; k++ {
		cut := p.cuts[k]
		cut.Unit = i
		dst, u.cuts = append(dst, p.refs[k]), append(u.cuts, cut)
	}
	return dst
}

// padUnits appends the places from ≤ k < to of a list that repeats the first size units, whose
// references and cuts are given.
func (c *Cursor) padUnits(dst, refs []order.Ref, cuts []order.Cut, size, from, to uint64) []order.Ref {
	begins := make([]int, 0, size+1) // of each unit, in refs
	for i := range cuts {
		if int(cuts[i].Unit) == len(begins) {
			begins = append(begins, i)
		}
	}
	begins = append(begins, len(cuts))
	unit := uint32(0)
	if n := len(c.units.cuts); n > 0 {
		unit = c.units.cuts[n-1].Unit + 1
	}
	for ; from < to; from++ {
		k := from % size
		for i := begins[k]; i < begins[k+1]; i++ {
			r, cut := refs[i], cuts[i]
			r.Slot, r.Padding, cut.Unit = 0, true, unit
			dst, c.units.cuts = append(dst, r), append(c.units.cuts, cut)
		}
		unit++
	}
	return dst
}
