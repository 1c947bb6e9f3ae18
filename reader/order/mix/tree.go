package mix

import (
	"cmp"
	"container/heap"
	"math/bits"
)

// tree is the split tree of one set of weights: a Huffman tree over the sources of weight > 0. Of the
// first q units of a node, ⌊(q·left + ⌊weight/2⌋) / weight⌋ belong to its left child.
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

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(c[i].weight, c[j].weight), cmp.Compare(c[i].lowest, c[j].lowest)) < 0
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
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
		n := node{weight: a.weight + b.weight, left: a.weight, children: [2]int32{a.child, b.child}, up: upward{parent: -1}}
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

// split is how many of the first q units of the node go left, and the remainder of that division.
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

// reach is the least q for which leaf i has got k of the first q units. It is the inverse of
// addCounts, one division a level. Not ok: there is none up to maxPosition.
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

// steps yields the sources of one position after another. Setting it up costs as much as counts, a
// step the depth of a leaf, without a division.
type steps struct {
	tree *tree
	rest []uint64 // of each node: the remainder of the division that splits its units so far
}

// start makes the source of position q the next one. It uses units as scratch.
func (s *steps) start(t *tree, units []uint64, q uint64) {
	s.tree = t
	s.rest = append(s.rest[:0], make([]uint64, len(t.nodes))...)
	if len(t.nodes) == 0 {
		return
	}
	units[len(t.nodes)-1] = q
	for i := len(t.nodes) - 1; i >= 0; i-- {
		n := &t.nodes[i]
		var left uint64
		left, s.rest[i] = n.split(units[i])
		if c := n.children[0]; c >= 0 {
			units[c] = left
		}
		if c := n.children[1]; c >= 0 {
			units[c] = units[i] - left
		}
	}
}

// next returns the source of the next position. The tree has at least one leaf.
func (s *steps) next() int {
	at := int32(len(s.tree.nodes)) - 1
	for at >= 0 {
		n := &s.tree.nodes[at]
		if s.rest[at] += n.left; s.rest[at] >= n.weight {
			s.rest[at] -= n.weight
			at = n.children[0]
		} else {
			at = n.children[1]
		}
	}
	return s.tree.leaves[^at].source // without nodes at is -1: leaf 0
}
