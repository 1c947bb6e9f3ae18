package cost

import (
	"cmp"
	"math/bits"
	"slices"
)

// Sum is a sum of costs.
type Sum struct{ hi, lo uint64 }

// Add adds a cost.
func (s *Sum) Add(cost uint64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, cost, 0)
	s.hi += carry
}

// Compare compares two sums.
func (s Sum) Compare(of Sum) int {
	return cmp.Or(cmp.Compare(s.hi, of.hi), cmp.Compare(s.lo, of.lo))
}

// Float returns the sum, nearly.
func (s Sum) Float() float64 { return (float64(s.hi)*(1<<64) + float64(s.lo)) / One }

// Dealer deals batches out. It is for one goroutine at a time.
type Dealer struct {
	order []int32
	heap  []bin
}

// bin is a bin with room.
type bin struct {
	sum    Sum
	number int32
	room   int
}

func (b *bin) less(of *bin) bool {
	if c := b.sum.Compare(of.sum); c != 0 {
		return c < 0
	}
	return b.number < of.number
}

// Deal deals the entries of a batch out to bins: by descending cost, then by place, each to the bin
// with the least sum of costs so far among those that have room, of equal ones to the first. counts
// are how many entries the bins get, and their sum is the number of entries. The entries from real
// on are padding: they come last, by place, and their cost is 0. Deal appends the number of the bin
// of each entry to dst.
func (d *Dealer) Deal(dst []int32, costs []uint64, real int, counts []int) []int32 {
	d.order = d.order[:0]
	for i := range costs {
		d.order = append(d.order, int32(i))
	}
	slices.SortFunc(d.order[:real], func(a, b int32) int {
		return cmp.Or(cmp.Compare(costs[b], costs[a]), cmp.Compare(a, b))
	})
	d.heap = d.heap[:0]
	for i, n := range counts { // equal sums in ascending order are a heap
		if n > 0 {
			d.heap = append(d.heap, bin{number: int32(i), room: n})
		}
	}
	from := len(dst)
	dst = slices.Grow(dst, len(costs))[:from+len(costs)]
	for _, i := range d.order {
		first := &d.heap[0]
		dst[from+int(i)] = first.number
		if int(i) < real {
			first.sum.Add(costs[i])
		}
		if first.room--; first.room == 0 {
			last := len(d.heap) - 1
			*first = d.heap[last]
			d.heap = d.heap[:last]
		}
		d.sift()
	}
	return dst
}

// sift moves the first bin to its place.
func (d *Dealer) sift() {
	h := d.heap
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].less(&h[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
