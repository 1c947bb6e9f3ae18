package viewstore

import (
	"math/bits"
	"sort"
	"sync"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/reader/order"
)

// Selection is the samples of a data set that its orders and streams have: the samples of a view,
// or all. It is safe for concurrent use.
type Selection struct {
	samples uint64         // of the data set
	file    *viewfile.View // nil: the whole data set
	id      string

	once sync.Once
	made order.View
	err  error

	listed sync.Once
	chosen *chosenList

	weighed sync.Once
	byClass []uint64 // weights of samples
}

// All selects all samples of a data set.
func All(samples uint64) *Selection { return &Selection{samples: samples} }

// Select selects the samples of a view, which must be of this content.
func Select(v *viewfile.View, of Content) (*Selection, error) {
	if err := of.check(v); err != nil {
		return nil, err
	}
	return &Selection{samples: of.Samples, file: v, id: v.ID()}, nil
}

// View returns the view, nil for the whole data set.
func (s *Selection) View() *viewfile.View { return s.file }

// ID returns the ID of the view; empty for the whole data set.
func (s *Selection) ID() string { return s.id }

// Len returns the number of samples of an epoch. A view with weights may have a sample many times
// in it.
func (s *Selection) Len() uint64 {
	switch v := s.file; {
	case v == nil:
		return s.samples
	case !v.Subset():
		return v.Draws
	}
	return s.list().total
}

// Distinct returns the number of samples, each counted once.
func (s *Selection) Distinct() uint64 {
	if s.file == nil {
		return s.samples
	}
	return s.list().total
}

// Has reports whether a sample is selected, given its number in storage order.
func (s *Selection) Has(number uint64) bool {
	switch v := s.file; {
	case v == nil:
		return true
	case v.Subset():
		return v.Chosen[number/8]>>(number%8)&1 != 0
	default:
		return v.Weights[number] > 0
	}
}

// LeftOut returns the numbers of the samples that are not selected, ascending; nil without a view.
// If they are given in reader.Options.Removed, the data set opens with the samples of a subset
// only.
func (s *Selection) LeftOut() (numbers []uint64) {
	if s.file == nil {
		return nil
	}
	for n := range s.samples {
		if !s.Has(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Order returns the view for an order, given the number of samples of each block, or nil for the
// whole data set.
func (s *Selection) Order(blocks []uint32) (order.View, error) {
	if s.file == nil {
		return nil, nil
	}
	s.once.Do(func() {
		s.made, s.err = Order(s.file, blocks)
	})
	return s.made, s.err
}

// Order makes the view for an order of a data set whose blocks have these numbers of samples.
func Order(v *viewfile.View, blocks []uint32) (order.View, error) {
	switch {
	case v.Subset():
		return view.Subset(blocks, v.Chosen)
	case v.Classes != nil:
		return view.Classes(blocks, v.Weights, v.Classes, v.Draws)
	}
	return view.Weights(blocks, v.Weights, v.Draws)
}

// Weight returns how often a sample is drawn, in proportion to the others: for a subset 1 or 0. The
// weights of all samples add up to less than 2^63.
func (s *Selection) Weight(number uint64) uint64 {
	switch v := s.file; {
	case !s.Has(number):
		return 0
	case v == nil || v.Subset():
		return 1
	case v.Classes == nil:
		return uint64(v.Weights[number])
	}
	s.weighed.Do(func() { s.byClass = weightsByClass(s.file) })
	return s.byClass[s.file.Weights[number]-1]
}

// weightsByClass are the weights of a sample of each class: of 2^62, the part that its class has
// and that it has of its class, rounded down twice.
func weightsByClass(v *viewfile.View) []uint64 {
	sizes, total := make([]uint64, len(v.Classes)), uint64(0)
	for _, k := range v.Weights {
		if k > 0 {
			sizes[k-1]++
		}
	}
	for _, g := range v.Classes {
		total += g
	}
	weights := make([]uint64, len(v.Classes))
	for k, g := range v.Classes {
		hi, lo := bits.Mul64(g, 1<<62)
		part, _ := bits.Div64(hi, lo, total) // g ≤ total < 2^63
		weights[k] = max(part/sizes[k], 1)
	}
	return weights
}

// Number returns the number, in storage order, of the i-th sample that is selected; i is below
// Distinct.
func (s *Selection) Number(i uint64) uint64 {
	if s.file == nil {
		return i
	}
	return s.list().number(i)
}

func (s *Selection) list() *chosenList {
	s.listed.Do(func() { s.chosen = newChosenList(s.file) })
	return s.chosen
}

// markBytes is the distance of marks in a chosenList: 4,096 samples.
const markBytes = 512

// chosenList finds the samples of a view by their place among the chosen ones.
type chosenList struct {
	bits  []byte
	marks []uint64 // chosen before byte i·markBytes
	total uint64
}

func newChosenList(v *viewfile.View) *chosenList {
	l := &chosenList{bits: v.Chosen}
	if !v.Subset() {
		l.bits = make([]byte, (len(v.Weights)+7)/8)
		for i, u := range v.Weights {
			if u > 0 {
				l.bits[i/8] |= 1 << (i % 8)
			}
		}
	}
	for i, b := range l.bits {
		if i%markBytes == 0 {
			l.marks = append(l.marks, l.total)
		}
		l.total += uint64(bits.OnesCount8(b))
	}
	return l
}

// number returns the number of the i-th sample of the list.
func (l *chosenList) number(i uint64) uint64 {
	at := sort.Search(len(l.marks), func(k int) bool { return l.marks[k] > i }) - 1
	left := i - l.marks[at]
	for k := at * markBytes; ; k++ {
		n := uint64(bits.OnesCount8(l.bits[k]))
		if left >= n {
			left -= n
			continue
		}
		b := l.bits[k]
		for ; left > 0; left-- {
			b &= b - 1
		}
		return uint64(8*k + bits.TrailingZeros8(b))
	}
}
