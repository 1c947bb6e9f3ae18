package view

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/shardtool/shardtool/reader/order"
)

// The words of a view with weights (ORDER.md, "Random words"): domain and obj. The third is for
// each block, with the block as obj and the lane number of samples.
const (
	domain      = 5
	wordsPhase  = 0
	wordsBlocks = 1
	laneInBlock = 2
)

// Weights is the view that draws n samples in each epoch, sample i in proportion to u[i]. blocks is
// the number of samples of each block; neither slice may be changed after the call.
func Weights(blocks []uint32, u []uint32, n uint64) (order.View, error) {
	w := &weights{blocks: blocks, u: u, draws: n, sums: make([]uint64, len(blocks))}
	var first uint64
	for b, samples := range blocks {
		if first+uint64(samples) > uint64(len(u)) {
			return nil, fmt.Errorf("%d weights for more samples", len(u))
		}
		for _, x := range u[first : first+uint64(samples)] {
			w.sums[b] += uint64(x)
		}
		first += uint64(samples)
		var carry uint64
		if w.total, carry = bits.Add64(w.total, w.sums[b], 0); carry != 0 || w.total >= 1<<63 {
			return nil, errors.New("the weights add up to 2^63 or more: give smaller ones")
		}
	}
	switch {
	case first != uint64(len(u)):
		return nil, fmt.Errorf("%d weights for %d samples", len(u), first)
	case w.total == 0:
		return nil, fmt.Errorf("%w: all weights are 0", ErrEmpty)
	}
	if err := checkDraws(n); err != nil {
		return nil, err
	}
	for b, sum := range w.sums {
		hi, lo := bits.Mul64(sum, n)
		q, r := bits.Div64(hi, lo, w.total) // sum ≤ total, so the quotient is at most n
		if r > 0 {
			q++
		}
		if q > maxBlockDraws {
			return nil, fmt.Errorf("block %d has up to %d of the %d draws, and at most %d fit: give fewer draws, or less uneven weights", b, q, n, maxBlockDraws)
		}
	}
	return w, nil
}

// checkDraws refuses a number of draws that an epoch cannot have.
func checkDraws(n uint64) error {
	switch {
	case n == 0:
		return fmt.Errorf("%w: it has 0 draws", ErrEmpty)
	case n >= 1<<63:
		return fmt.Errorf("%d draws, at most %d", n, uint64(1<<63-1))
	}
	return nil
}

// shuffled returns the numbers below n in the order that words draw for an epoch.
func shuffled(n int, key uint64, epoch uint32, words uint32) []uint32 {
	line := make([]uint32, n)
	for i := range line {
		line[i] = uint32(i)
	}
	order.ShuffleWords(line, key, domain, words, epoch, 0)
	return line
}

// appendTimes appends each number as often as times has it.
func appendTimes(dst, times []uint32) []uint32 {
	for i, n := range times {
		for range n {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

type weights struct {
	blocks []uint32 // samples of each block
	u      []uint32 // of each sample
	sums   []uint64 // of u, of each block
	total  uint64   // T
	draws  uint64   // n
}

func (w *weights) Samples() uint64 { return w.draws }
func (w *weights) Fixed() bool     { return false }
func (w *weights) Slack() uint32   { return 1 }

// Chosen takes the blocks in a random order and finds what has been drawn before each.
func (w *weights) Chosen(key uint64, epoch uint32) order.Chosen {
	d := &drawn{weights: w, key: key, epoch: epoch, before: make([]uint64, len(w.blocks)),
		counts: make([]uint32, len(w.blocks))}
	d.phase, _ = bits.Mul64(order.FirstWords(key, domain, wordsPhase, epoch, 0), w.total)
	var sum, given uint64
	for _, b := range shuffled(len(w.blocks), key, epoch, wordsBlocks) {
		d.before[b] = sum
		sum += w.sums[b]
		if w.sums[b] > 0 {
			through := d.through(sum)
			d.counts[b] = uint32(through - given)
			given = through
		}
	}
	return d
}

// drawn is the draws of an epoch.
type drawn struct {
	*weights
	key    uint64
	epoch  uint32
	phase  uint64   // φ
	before []uint64 // by block: C, the sum of u over the blocks taken before
	counts []uint32 // by block
}

func (d *drawn) Counts() []uint32 { return d.counts }

// through is how many draws the samples have that are taken until their u add up to c: those k ≥ 0
// with k·T + φ < c·n.
func (d *drawn) through(c uint64) uint64 {
	hi, lo := bits.Mul64(c, d.draws)
	lo, borrow := bits.Sub64(lo, d.phase, 0)
	hi, borrow = bits.Sub64(hi, 0, borrow)
	if borrow != 0 || hi|lo == 0 {
		return 0
	}
	lo, borrow = bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, d.total) // c ≤ T, so the quotient is below n
	return q + 1
}

// scratch is what Append needs for a block.
type scratch struct{ line, times []uint32 }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (d *drawn) Append(dst []uint32, block uint32, first uint64) []uint32 {
	if d.counts[block] == 0 {
		return dst
	}
	n := d.blocks[block]
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.line, s.times = s.line[:0], s.times[:0]
	for i := range n {
		s.line, s.times = append(s.line, i), append(s.times, 0)
	}
	order.ShuffleWords(s.line, d.key, domain, laneInBlock, d.epoch, block)
	c := d.before[block]
	given := d.through(c)
	for _, i := range s.line {
		if u := d.u[first+uint64(i)]; u > 0 {
			c += uint64(u)
			through := d.through(c)
			s.times[i] = uint32(through - given)
			given = through
		}
	}
	return appendTimes(dst, s.times)
}
