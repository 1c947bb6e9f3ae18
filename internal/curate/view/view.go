// Package view selects the samples of a data set that an order has, and how often in an epoch
// (ORDER.md, "Views"). It is pure: package viewfile reads and writes view files.
//
// A subset has each of its samples once in every epoch. A view with weights draws a fixed number of
// samples in each epoch, in proportion to their weights; each sample is drawn as often as its
// weight asks for, rounded down or up, and which way is drawn anew in every epoch. A view with
// classes has its weights by class: each class is drawn as often as its weight asks for, and its
// samples equally often, both rounded down or up.
package view

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// maxBlockDraws is the most draws that a view may have in one block.
const maxBlockDraws = 1 << 20

// ErrEmpty: a view has no samples.
var ErrEmpty = errors.New("the view has no samples")

// Subset is the view of the samples whose bit is set: bit i mod 8 of byte i/8 for sample i. blocks
// is the number of samples of each block; neither slice may be changed after the call.
func Subset(blocks []uint32, chosen []byte) (order.View, error) {
	s := &subset{bits: chosen, counts: make([]uint32, len(blocks))}
	var first uint64
	for b, n := range blocks {
		next := first + uint64(n)
		if next > 8*uint64(len(chosen)) {
			return nil, fmt.Errorf("%d bytes for more than %d samples", len(chosen), next)
		}
		s.counts[b] = uint32(countBits(chosen, first, next))
		s.samples += uint64(s.counts[b])
		first = next
	}
	if (first+7)/8 != uint64(len(chosen)) || first%8 != 0 && chosen[first/8]>>(first%8) != 0 {
		return nil, fmt.Errorf("%d bytes, not the bits of %d samples", len(chosen), first)
	}
	if s.samples == 0 {
		return nil, ErrEmpty
	}
	return s, nil
}

// subset is its own Chosen.
type subset struct {
	bits    []byte
	counts  []uint32 // by block
	samples uint64
}

func (s *subset) Samples() uint64                    { return s.samples }
func (s *subset) Fixed() bool                        { return true }
func (s *subset) Slack() uint32                      { return 0 }
func (s *subset) Chosen(uint64, uint32) order.Chosen { return s }
func (s *subset) Counts() []uint32                   { return s.counts }

func (s *subset) Append(dst []uint32, block uint32, first uint64) []uint32 {
	left := s.counts[block]
	for at := first / 8; left > 0; at++ {
		b := s.bits[at]
		if at == first/8 {
			b &= 0xff << (first % 8)
		}
		for ; b != 0 && left > 0; b &= b - 1 {
			dst = append(dst, uint32(8*at+uint64(bits.TrailingZeros8(b))-first))
			left--
		}
	}
	return dst
}

// countBits counts the bits from ≤ i < to that are set.
func countBits(b []byte, from, to uint64) (n int) {
	for ; from < to && from%8 != 0; from++ {
		n += int(b[from/8] >> (from % 8) & 1)
	}
	for ; from+8 <= to; from += 8 {
		n += bits.OnesCount8(b[from/8])
	}
	for ; from < to; from++ {
		n += int(b[from/8] >> (from % 8) & 1)
	}
	return n
}
