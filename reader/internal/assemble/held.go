package assemble

import (
	"slices"

	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/order"
)

// Held is the content of a batch: the references of its draft without holes, which are skipped and
// removed samples. Samples, rows and units are views of it. The zero value holds nothing.
type Held struct {
	Holes   int
	Samples int   // without padding
	Bytes   int64 // of their fields

	refs   []order.Ref // of the draft
	cuts   []order.Cut // of each, where positions hold units; else empty
	places []int32     // in refs; empty where there are no holes
}

// Len returns how many samples or rows the batch holds, padding included.
func (h *Held) Len() int { return len(h.refs) - h.Holes }

// Place returns the place of sample or row i in this rank's part of the batch.
func (h *Held) Place(i int) int {
	if h.Holes > 0 {
		return int(h.places[i])
	}
	return i
}

// Ref returns the reference of sample or row i.
func (h *Held) Ref(i int) *order.Ref { return &h.refs[h.Place(i)] }

// Cut returns the unit of sample i, and the piece of the sample that is in it; the zero value where
// positions hold samples.
func (h *Held) Cut(i int) (c order.Cut) {
	if len(h.cuts) > 0 {
		c = h.cuts[h.Place(i)]
	}
	return c
}

// Unit returns the first reference of a unit, even if it is a hole, or nil if there is no such
// unit.
func (h *Held) Unit(unit uint32) *order.Ref {
	i, ok := slices.BinarySearchFunc(h.cuts, unit,
		func(c order.Cut, unit uint32) int { return int(c.Unit) - int(unit) })
	if !ok {
		return nil
	}
	return &h.refs[i]
}

// Units returns how many units there are, including units of holes.
func (h *Held) Units() int {
	if n := len(h.cuts); n > 0 {
		return int(h.cuts[n-1].Unit) + 1
	}
	return 0
}

// padding returns how many of the samples or rows are padding: the last ones of a batch.
func (h *Held) padding() (n int) {
	for n < h.Len() && h.Ref(h.Len()-1-n).Padding {
		n++
	}
	return n
}

// begin starts a new draft.
func (h *Held) begin(d *planner.Draft) {
	*h = Held{refs: d.Refs, cuts: d.Cuts, places: h.places[:0]}
}

// close removes the holes.
func (h *Held) close(holes []int32) {
	h.Holes = len(holes)
	defer func() { h.Samples = h.Len() - h.padding() }()
	if h.Holes == 0 {
		return
	}
	slices.Sort(holes)
	for i := range h.refs {
		if len(holes) > 0 && holes[0] == int32(i) {
			holes = holes[1:]
			continue
		}
		h.places = append(h.places, int32(i))
	}
}
