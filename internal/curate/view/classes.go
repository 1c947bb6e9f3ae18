package view

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/shardtool/shardtool/reader/order"
)

// The words of a view with classes beside the words of weights: lane numbers of domain 5. The
// words of wordsStart have the class as obj.
const (
	wordsClasses = 3
	wordsStart   = 4
)

// Classes is the view that draws n samples in each epoch, of class k in proportion to weights[k-1].
// Sample i is of class class[i], or of none if that is 0. blocks is the number of samples of each
// block; no slice may be changed after the call.
func Classes(blocks, class []uint32, weights []uint64, n uint64) (order.View, error) {
	c := &classes{
		blocks: blocks, first: make([]uint64, len(blocks)), class: class, weights: weights, draws: n,
		sizes: make([]uint64, len(weights)),
	}
	var first uint64
	for b, samples := range blocks {
		c.first[b] = first
		first += uint64(samples)
	}
	if first != uint64(len(class)) {
		return nil, fmt.Errorf("classes of %d samples, not of %d", len(class), first)
	}
	for i, k := range class {
		if uint64(k) > uint64(len(weights)) {
			return nil, fmt.Errorf("sample %d is of class %d of %d", i, k, len(weights))
		}
		if k > 0 {
			c.sizes[k-1]++
		}
	}
	for k, g := range weights {
		if g == 0 || c.sizes[k] == 0 {
			return nil, fmt.Errorf("class %d has %d samples and the weight %d", k+1, c.sizes[k], g)
		}
		var carry uint64
		if c.total, carry = bits.Add64(c.total, g, 0); carry != 0 || c.total >= 1<<63 {
			return nil, errors.New("the weights add up to 2^63 or more: give smaller ones")
		}
	}
	if len(weights) == 0 {
		return nil, fmt.Errorf("%w: no sample is of a class", ErrEmpty)
	}
	if err := checkDraws(n); err != nil {
		return nil, err
	}
	c.scratches.New = func() any { return &classScratch{left: make([]uint32, 1+len(weights))} }
	return c, c.bound()
}

type classes struct {
	blocks    []uint32 // samples of each block
	first     []uint64 // sample of each block
	class     []uint32 // of each sample, from 1; 0: none
	weights   []uint64 // g, of each class
	sizes     []uint64 // c, samples of each class
	total     uint64   // T
	draws     uint64   // n
	slack     uint32
	scratches sync.Pool
	deals     deals
}

func (c *classes) Samples() uint64 { return c.draws }
func (c *classes) Fixed() bool     { return false }
func (c *classes) Slack() uint32   { return c.slack }

// share is n draws of a class of c samples: every for each, and the rest of the division by c as
// the fraction rest/2^64 of a draw, rounded down.
type share struct{ every, rest uint64 }

func shareOf(n, c uint64) share {
	rest, _ := bits.Div64(n%c, 0, c)
	return share{n / c, rest}
}

// bound finds by how many the draws of a block differ at most from epoch to epoch, and refuses too
// many in a block.
func (c *classes) bound() error {
	low, high := make([]share, len(c.weights)), make([]share, len(c.weights))
	for k, g := range c.weights {
		hi, lo := bits.Mul64(g, c.draws)
		n, rest := bits.Div64(hi, lo, c.total) // g ≤ total, so the quotient is at most draws
		low[k], high[k] = shareOf(n, c.sizes[k]), shareOf(n+min(rest, 1), c.sizes[k])
	}
	counts := make([]uint32, len(c.weights))
	for b, samples := range c.blocks {
		own := c.class[c.first[b]:][:samples]
		for _, k := range own {
			if k > 0 {
				counts[k-1]++
			}
		}
		var least, most uint64
		for _, k := range own {
			if k == 0 || counts[k-1] == 0 {
				continue
			}
			m := uint64(counts[k-1])
			counts[k-1] = 0
			more, _ := bits.Mul64(m, low[k-1].rest)
			least += m*low[k-1].every + more
			more, part := bits.Mul64(m, high[k-1].rest)
			if most += m*high[k-1].every + more + min(part, 1); most > maxBlockDraws {
				return fmt.Errorf("block %d has more than %d of the %d draws: give fewer draws, or less uneven classes",
					b, maxBlockDraws, c.draws)
			}
		}
		c.slack = max(c.slack, uint32(most-least))
	}
	return nil
}

// turn deals the draws of a class: each sample gets every of them, and the samples of a block one
// more as often as the sum of rests passes 2^64 in it.
type turn struct{ sum, rest, every uint64 }

// turns are how the draws of every class are dealt in an epoch. Class 0 means none, and has no
// draws.
func (c *classes) turns(key uint64, epoch uint32) []turn {
	phase, _ := bits.Mul64(order.FirstWords(key, domain, wordsPhase, epoch, 0), c.total)
	all := make([]turn, 1+len(c.weights))
	var sum, given uint64
	for _, k := range shuffled(len(c.weights), key, epoch, wordsClasses) {
		sum += c.weights[k]
		hi, lo := bits.Mul64(sum, c.draws)
		lo, carry := bits.Add64(lo, phase, 0)
		through, _ := bits.Div64(hi+carry, lo, c.total) // sum ≤ total, so the quotient is at most n
		n, size := through-given, c.sizes[k]
		given = through
		of := shareOf(n, size)
		// Rests are rounded down, together by less than size: with that in the sum, all draws are dealt.
		all[1+k] = turn{max(order.FirstWords(key, domain, wordsStart, epoch, k), size), of.rest, of.every}
	}
	return all
}

// Chosen returns the draws of an epoch. Since they cost a pass over all samples, the draws of the
// next epoch are made meanwhile.
func (c *classes) Chosen(key uint64, epoch uint32) order.Chosen {
	now, ahead := c.deals.of(c, key, epoch)
	if ahead != nil {
		go ahead()
	}
	return now()
}

// deals are the draws of the epoch that was asked for last, and of the next one.
type deals struct {
	mu   sync.Mutex
	kept [2]deal
}

type deal struct {
	key   uint64
	epoch uint32
	made  func() *dealt // once
}

// of returns what makes the draws of an epoch, and of the next one if nobody does that yet.
func (ds *deals) of(c *classes, key uint64, epoch uint32) (now, ahead func() *dealt) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	find := func(epoch uint32) (made func() *dealt, fresh bool) {
		for _, d := range ds.kept {
			if d.made != nil && d.key == key && d.epoch == epoch {
				return d.made, false
			}
		}
		return sync.OnceValue(func() *dealt { return c.deal(key, epoch) }), true
	}
	now, _ = find(epoch)
	next, fresh := find(epoch + 1)
	ds.kept = [2]deal{{key, epoch, now}, {key, epoch + 1, next}}
	if fresh {
		ahead = next
	}
	return now, ahead
}

// deal deals the draws of every class to its samples, and notes which of them has one more: in a
// block as if samples were taken in storage order. Append finds the order in which they are.
func (c *classes) deal(key uint64, epoch uint32) *dealt {
	all := c.turns(key, epoch)
	d := &dealt{
		classes: c, key: key, epoch: epoch, counts: make([]uint32, len(c.blocks)), every: make([]uint32, len(all)),
		more: make([]uint64, (len(c.class)+63)/64),
	}
	for k := range all {
		d.every[k] = uint32(all[k].every)
	}
	for _, b := range shuffled(len(c.blocks), key, epoch, wordsBlocks) {
		at, count := c.first[b], uint64(0)
		word, bit := at/64, at%64
		var more uint64
		for _, k := range c.class[at:][:c.blocks[b]] {
			t := &all[k]
			sum, one := bits.Add64(t.sum, t.rest, 0)
			t.sum = sum
			count += t.every + one
			more |= one << bit
			if bit++; bit == 64 {
				d.more[word] |= more
				word, bit, more = word+1, 0, 0
			}
		}
		if more != 0 {
			d.more[word] |= more
		}
		d.counts[b] = uint32(count)
	}
	return d
}

// dealt is the draws of an epoch.
type dealt struct {
	*classes
	key    uint64
	epoch  uint32
	counts []uint32 // by block
	every  []uint32 // by class, from 0: what each of its samples has
	more   []uint64 // bits of samples: as many as are set in a block for a class have one more
}

func (d *dealt) Counts() []uint32 { return d.counts }

// classScratch is what Append needs for a block. left is 0 between two calls.
type classScratch struct{ line, times, left []uint32 }

func (d *dealt) Append(dst []uint32, block uint32, first uint64) []uint32 {
	if d.counts[block] == 0 {
		return dst
	}
	s := d.scratches.Get().(*classScratch)
	defer d.scratches.Put(s)
	s.line, s.times = s.line[:0], s.times[:0]
	class := d.class[first:][:d.blocks[block]]
	for i, k := range class {
		at := first + uint64(i)
		s.left[k] += uint32(d.more[at/64] >> (at % 64) & 1)
		s.line, s.times = append(s.line, uint32(i)), append(s.times, d.every[k])
	}
	order.ShuffleWords(s.line, d.key, domain, laneInBlock, d.epoch, block)
	for _, i := range s.line {
		if k := class[i]; s.left[k] > 0 {
			s.left[k]--
			s.times[i]++
		}
	}
	return appendTimes(dst, s.times)
}
