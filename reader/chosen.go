package reader

import (
	"math/bits"
	"sort"

	"github.com/shardtool/shardtool/format"
)

// markBytes is the distance of marks in a chosenList: 4,096 samples.
const markBytes = 512

// chosenList finds the samples of a view by their place among the chosen ones.
type chosenList struct {
	bits  []byte
	marks []uint64 // chosen before byte i·markBytes
	total uint64
}

func newChosenList(v *format.View) *chosenList {
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

// Chosen is the number of samples that the view in use has, each counted once; without a view, of
// all samples.
func (d *Dataset) Chosen() uint64 {
	if d.view.file == nil {
		return d.NumSamples()
	}
	return d.view.list().total
}

// ChosenNumber returns the number, in storage order, of the i-th sample that the view in use has;
// without a view i itself. i is below Chosen.
func (d *Dataset) ChosenNumber(i uint64) uint64 {
	if d.view.file == nil {
		return i
	}
	l := d.view.list()
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

// IsChosen reports whether the view in use has a sample; without a view every one is chosen.
func (d *Dataset) IsChosen(number uint64) bool {
	switch v := d.view.file; {
	case v == nil:
		return true
	case v.Subset():
		return v.Chosen[number/8]>>(number%8)&1 != 0
	default:
		return v.Weights[number] > 0
	}
}
