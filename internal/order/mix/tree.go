package mix

import (
	"cmp"
	"container/heap"
	"math/bits"
	"slices"
)

// tree is the split tree of one set of weights: a Huffman tree over the sources of weight > 0. Of
// the first q units of a node, ⌊(q·left + ⌊weight/2⌋) / weight⌋ belong to its left child.
type tree struct {
	nodes  []node // children come before their parents, so the root is last
	leaves []leaf // the sources of weight > 0; without nodes, at most one
}

type node struct {
	weight, left uint64
	children     [2]int32 // left and right: a node, or ^i for leaf i
	up           upward
}

type leaf struct {
	source int
	up     upward
}

// upward leads from a child to its parent.
type upward struct {
	parent int32 // -1 at the root
	right  bool
}

// candidate is a node or leaf that the construction has not joined yet.
type candidate struct {
	weight uint64
	lowest int // source number under it
	child  int32
}

// candidates is a heap: the lightest first, on a tie the one with the lowest source number.
type candidates []candidate

// Len and the four methods below it implement heap.Interface.
func (c candidates) Len() int { return len(c) }

// Less puts the lightest first.
func (c candidates) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(c[i].weight, c[j].weight), cmp.Compare(c[i].lowest, c[j].lowest)) < 0
}

// Swap exchanges two candidates.
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

// Push adds a candidate.
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }

// Pop removes the last candidate.
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// newTree makes the tree of weights by source number. Their sum is below 2^62.
func newTree(weights []uint64) tree {
	var t tree
	var open candidates
	for s, w := range weights {
		if w > 0 {
			open = append(open, candidate{w, s, ^int32(len(t.leaves))})
			t.leaves = append(t.leaves, leaf{s, upward{parent: -1}})
		}
	}
	if len(open) < 2 {
		return t
	}
	t.nodes = make([]node, 0, len(open)-1)
	heap.Init(&open)
	for len(open) > 1 {
		a := heap.Pop(&open).(candidate)
		b := heap.Pop(&open).(candidate)
		parent := int32(len(t.nodes))
		t.link(a.child, upward{parent, false})
		t.link(b.child, upward{parent, true})
		n := node{weight: a.weight + b.weight, left: a.weight, children: [2]int32{a.child, b.child},
			up: upward{parent: -1}}
		t.nodes = append(t.nodes, n)
		heap.Push(&open, candidate{n.weight, min(a.lowest, b.lowest), parent})
	}
	return t
}

func (t *tree) link(child int32, up upward) {
	if child < 0 {
		t.leaves[^child].up = up
	} else {
		t.nodes[child].up = up
	}
}

// split returns how many of the first q units of the node go left, and the remainder of that
// division.
func (n *node) split(q uint64) (left, rest uint64) {
	hi, lo := bits.Mul64(q, n.left)
	lo, carry := bits.Add64(lo, n.weight/2, 0)
	return bits.Div64(hi+carry, lo, n.weight) // left ≤ q, so it fits
}

// addCounts adds to counts, by source number, how many of the first q units each source gets. It
// uses units, of at least one place for each node, as scratch.
func (t *tree) addCounts(counts, units []uint64, q uint64) {
	if len(t.nodes) == 0 {
		for _, l := range t.leaves {
			counts[l.source] += q
		}
		return
	}
	units[len(t.nodes)-1] = q
	for i := len(t.nodes) - 1; i >= 0; i-- {
		n := &t.nodes[i]
		left, _ := n.split(units[i])
		for k, share := range [2]uint64{left, units[i] - left} {
			if c := n.children[k]; c >= 0 {
				units[c] = share
			} else {
				counts[t.leaves[^c].source] += share
			}
		}
	}
}

// reach returns the least q for which leaf i has got k of the first q units. It is the inverse of
// addCounts, with one division a level. ok is false if there is none up to maxPosition.
func (t *tree) reach(i int, k uint64) (q uint64, ok bool) {
	q = k
	for up := t.leaves[i].up; up.parent >= 0 && q > 0; up = t.nodes[up.parent].up {
		// Left: the least x with x·left + ⌊weight/2⌋ ≥ q·weight. Right, where x units leave
		// ⌈(x·right - ⌊weight/2⌋) / weight⌉: the least x with x·right > (q-1)·weight + ⌊weight/2⌋.
		n := &t.nodes[up.parent]
		divisor := n.left
		hi, lo := bits.Mul64(q, n.weight)
		var carry uint64
		if up.right {
			divisor = n.weight - n.left
			lo, carry = bits.Sub64(lo, n.weight-n.weight/2-1, 0)
		} else {
			lo, carry = bits.Sub64(lo, n.weight/2, 0)
		}
		hi -= carry
		lo, carry = bits.Add64(lo, divisor-1, 0)
		if hi += carry; hi >= divisor {
			return 0, false
		}
		if q, _ = bits.Div64(hi, lo, divisor); q > maxPosition {
			return 0, false
		}
	}
	return q, q <= maxPosition
}

// sequencer finds the sources of consecutive positions. It costs one division for each node that
// has a unit among them, and for each position the depth of its leaf, without branches to
// mispredict.
type sequencer struct {
	spans       []span
	list, spare []uint32
}

// span is a node's part of the list: its units there, and how many it had before.
type span struct {
	units    uint64
	from, to int
}

// places appends to where, by source, the places of its units among n positions from q on, which
// are first, first+1 and so on. The list of places is parted at the root, and each part again at
// its node, until every leaf has the places that are its source's.
func (x *sequencer) places(where [][]uint32, t *tree, q uint64, first, n int) {
	x.list, x.spare = slices.Grow(x.list[:0], n)[:n], slices.Grow(x.spare[:0], n)[:n]
	for i := range x.list {
		x.list[i] = uint32(first + i)
	}
	x.spans = append(x.spans[:0], make([]span, len(t.nodes))...)
	x.give(where, t, int32(len(t.nodes))-1, span{q, 0, n}) // without nodes that is leaf 0
	for i := len(t.nodes) - 1; i >= 0; i-- {
		if s := x.spans[i]; s.from < s.to {
			left, middle := x.part(&t.nodes[i], s)
			x.give(where, t, t.nodes[i].children[0], span{left, s.from, middle})
			x.give(where, t, t.nodes[i].children[1], span{s.units - left, middle, s.to})
		}
	}
}

// part moves the places of a node's left child before the places of its right child. It returns how
// many units the left child had before, and where the right child's places begin.
func (x *sequencer) part(n *node, s span) (left uint64, middle int) {
	left, rest := n.split(s.units)
	list, spare := x.list[s.from:s.to], x.spare[:s.to-s.from]
	step, back := n.left, n.left-n.weight // back modulo 2^64
	l := uint64(0)
	for i, place := range list {
		// To the left where rest+left reaches the weight, which is where adding back carries. Both sums
		// are at hand when it is known: only an addition and a choice lie between two places.
		next := rest + step
		over, toLeft := bits.Add64(rest, back, 0)
		if toLeft != 0 {
			next = over
		}
		rest = next
		list[l], spare[uint64(i)-l] = place, place
		l += toLeft
	}
	copy(list[l:], spare[:uint64(len(list))-l])
	return left, s.from + int(l)
}

func (x *sequencer) give(where [][]uint32, t *tree, child int32, s span) {
	if child >= 0 {
		x.spans[child] = s
		return
	}
	source := t.leaves[^child].source
	where[source] = append(where[source], x.list[s.from:s.to]...)
}
