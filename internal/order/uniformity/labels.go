package uniformity

import (
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// Labels gives every sample of a data set a label, 0..Len()-1.
type Labels struct {
	of     []uint16 // nil: by place in storage
	stored uint64   // samples of the data set
	count  []uint64 // samples of each label, in an epoch
	total  uint64   // their sum
}

// NewLabels takes the label of each sample, in storage order. It keeps the slice.
func NewLabels(of []uint16) *Labels {
	l := &Labels{of: of, stored: uint64(len(of)), total: uint64(len(of))}
	for _, label := range of {
		for int(label) >= len(l.count) {
			l.count = append(l.count, 0)
		}
		l.count[label]++
	}
	return l
}

// Parts divides storage into up to 100 parts of equal length, as classes do a data set that is
// stored class by class.
func Parts(samples uint64) *Labels {
	l := &Labels{stored: samples, total: samples, count: make([]uint64, min(100, max(samples, 1)))}
	n := uint64(len(l.count))
	for i := range n { // the samples from ⌈i·samples/n⌉ on have label i
		l.count[i] = divUp(i+1, samples, n) - divUp(i, samples, n)
	}
	return l
}

// divUp returns ⌈a·b/n⌉, for a ≤ n.
func divUp(a, b, n uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, n-1, 0)
	q, _ := bits.Div64(hi+carry, lo, n)
	return q
}

// Len returns the number of labels.
func (l *Labels) Len() int { return len(l.count) }

// Of returns the label of a sample, given its number in storage order.
func (l *Labels) Of(number uint64) int {
	if l.of != nil {
		return int(l.of[number])
	}
	hi, lo := bits.Mul64(number, uint64(len(l.count)))
	q, _ := bits.Div64(hi, lo, l.stored)
	return int(q)
}

// In returns the labels for an epoch of a plan. With a view these are the labels of its samples, as
// often as they are drawn. Without a view they are l.
func (l *Labels) In(p *order.Plan, epoch uint64) *Labels {
	if !p.Viewed() {
		return l
	}
	own := &Labels{of: l.of, stored: l.stored, count: make([]uint64, len(l.count)), total: p.Samples()}
	p.Drawn(epoch, func(number uint64) { own.count[own.Of(number)]++ })
	return own
}
