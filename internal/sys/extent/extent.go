// Package extent divides a range of places among users who give them back in any order.
package extent

import "slices"

// List is the free extents of a range: ascending, never touching one another. The zero value is
// empty; Put gives it its range.
type List []Extent

// Extent is Size places from At on.
type Extent struct{ At, Size int }

// Take takes n places of the first extent that is large enough.
func (l *List) Take(n int) (at int, ok bool) {
	for i := range *l {
		e := &(*l)[i]
		if e.Size < n {
			continue
		}
		at = e.At
		if e.At, e.Size = e.At+n, e.Size-n; e.Size == 0 {
			*l = slices.Delete(*l, i, i+1)
		}
		return at, true
	}
	return 0, false
}

// Put gives back n places, and joins them with their neighbours.
func (l *List) Put(at, n int) {
	s := *l
	i, _ := slices.BinarySearchFunc(s, at, func(e Extent, at int) int { return e.At - at })
	joinsNext := i < len(s) && s[i].At == at+n
	joinsLast := i > 0 && s[i-1].At+s[i-1].Size == at
	switch {
	case joinsNext && joinsLast:
		s[i-1].Size += n + s[i].Size
		s = slices.Delete(s, i, i+1)
	case joinsNext:
		s[i] = Extent{at, n + s[i].Size}
	case joinsLast:
		s[i-1].Size += n
	default:
		s = slices.Insert(s, i, Extent{at, n})
	}
	*l = s
}
