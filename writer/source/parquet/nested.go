package parquet

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"
)

// errUneven means that the leaves of a column disagree on the number of elements in a row.
var errUneven = corruptf("the parts of a row have different numbers of elements")

// assembly reassembles one row of a nested column from the levels of its leaves, which encode where
// lists begin and what is null (Melnik et al., Dremel, VLDB 2010).
type assembly struct {
	root   *node
	leaves []*entries // leaves of root, in order
	twice  bool       // a map has a key twice
	err    error
}

// json appends the row as JSON.
func (a *assembly) json(dst []byte) ([]byte, error) {
	for _, e := range a.leaves {
		e.at, e.vat = 0, 0
	}
	dst = a.value(dst, a.root)
	for _, e := range a.leaves {
		if e.at != len(e.defs) {
			a.fail(errUneven)
		}
	}
	return dst, a.err
}

func (a *assembly) fail(err error) { a.err = cmp.Or(a.err, err) }

// lead returns the first leaf of a node. The other leaves have the same levels.
func (a *assembly) lead(n *node) *entries { return a.leaves[n.first-a.root.first] }

// level returns the definition level of the next entry of a node, or -1 after the end.
func (a *assembly) level(n *node) int16 {
	e := a.lead(n)
	if e.at >= len(e.defs) {
		a.fail(errUneven)
		return -1
	}
	return e.defs[e.at]
}

// pass skips one entry of each leaf of a null or empty node.
func (a *assembly) pass(n *node) {
	for _, e := range a.leaves[n.first-a.root.first : n.last-a.root.first+1] {
		e.at++
	}
}

func (a *assembly) value(dst []byte, n *node) []byte {
	level := a.level(n)
	if a.err != nil {
		return dst
	}
	if level < n.def {
		a.pass(n)
		return append(dst, "null"...)
	}
	switch n.shape {
	case shapeScalar:
		e := a.lead(n)
		v, ok := e.value(e.vat)
		if !ok {
			a.fail(errUneven)
			return dst
		}
		e.at++
		e.vat++
		if err := n.leaf.checkTime(v); err != nil {
			a.fail(err)
			return dst
		}
		if n.leaf.scalar.class == classText && !utf8.Valid(v.b) { // JSON would have other text
			a.fail(corruptf("its text %.40q is not UTF-8: write it as bytes, or take the other columns only", v.b))
			return dst
		}
		return n.leaf.appendJSON(dst, v)
	case shapeStruct:
		if len(n.kids) == 0 {
			a.pass(n)
		}
		dst = append(dst, '{')
		for i, k := range n.kids {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, []byte(k.name)), ':')
			dst = a.value(dst, k)
		}
		return append(dst, '}')
	case shapeMap:
		return a.pairs(dst, n)
	}
	dst = append(dst, '[')
	dst = a.elements(dst, n, func(dst []byte) []byte { return a.value(dst, n.kids[0]) })
	return append(dst, ']')
}

// elements calls f for each element of a list or map and separates them by commas.
func (a *assembly) elements(dst []byte, n *node, f func([]byte) []byte) []byte {
	if a.level(n) < n.elem {
		a.pass(n)
		return dst
	}
	e := a.lead(n)
	for first := true; a.err == nil; first = false {
		if !first {
			if e.at >= len(e.reps) || e.reps[e.at] < n.rep {
				break
			}
			if e.reps[e.at] > n.rep {
				a.fail(errUneven)
				break
			}
			dst = append(dst, ',')
		}
		begin := e.at
		dst = f(dst)
		if e.at == begin {
			a.fail(errUneven)
		}
	}
	return dst
}

// pairs appends a map: an object if its keys are strings that differ, else a list of pairs, because
// readers of an object take one of two members.
func (a *assembly) pairs(dst []byte, n *node) []byte {
	key, val := n.kids[0], n.kids[1]
	if key.shape != shapeScalar || key.leaf.scalar.class != classText {
		dst = append(dst, '[')
		dst = a.elements(dst, n, func(dst []byte) []byte {
			dst = a.value(append(dst, '['), key)
			return append(a.value(append(dst, ','), val), ']')
		})
		return append(dst, ']')
	}
	type member struct{ begin, colon, end int }
	var members []member
	seen, begin := map[string]bool{}, len(dst)
	dst = append(dst, '{')
	dst = a.elements(dst, n, func(dst []byte) []byte {
		m := member{begin: len(dst)}
		dst = a.value(dst, key)
		m.colon = len(dst)
		dst = a.value(append(dst, ':'), val)
		m.end = len(dst)
		seen[string(dst[m.begin:m.colon])] = true
		members = append(members, m)
		return dst
	})
	if len(seen) == len(members) {
		return append(dst, '}')
	}
	a.twice = true
	object := bytes.Clone(dst)
	dst = append(dst[:begin], '[')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '['), object[m.begin:m.colon]...), ',')
		dst = append(append(dst, object[m.colon+1:m.end]...), ']')
	}
	return append(dst, ']')
}

// numpy appends the row as a .npy file of version 1.0. ok is false if the list of numbers is ragged
// or has nulls.
func (a *assembly) numpy(dst []byte) (out []byte, ok bool, err error) {
	if a.root.shape == shapeStruct {
		return a.variable(dst)
	}
	e := a.leaves[0]
	var lists []*node
	n := a.root
	for ; n.shape == shapeList; n = n.kids[0] {
		lists = append(lists, n)
	}
	dims := make([]int, len(lists))
	count := len(e.nums) + len(e.ends)
	switch {
	case len(e.defs) == 1 && e.defs[0] < lists[0].elem: // empty
	case count == 0 && len(lists) == 2 && !slices.ContainsFunc(e.defs, func(l int16) bool { return l != lists[1].def }): // rows without columns
		dims[0] = len(e.defs)
	case count != len(e.defs):
		return dst, false, nil
	default:
		if !rectangle(e.reps, dims) {
			return dst, false, nil
		}
	}
	t := a.root.tensor
	if dims, err = t.stored(dims); err != nil {
		return dst, false, err
	}
	name, size := n.leaf.scalar.dtype()
	dst = t.appendHeader(dst, name, dims)
	begin := len(dst)
	for i := range count {
		v, _ := e.value(i)
		dst = n.leaf.scalar.appendRaw(dst, v)
	}
	t.arrange(dst[begin:], size, dims)
	return dst, true, nil
}

// rectangle computes the dimensions of nested lists from the repetition levels of their values. An
// element of list k begins where the level is at most k, which in a rectangle occurs at equal
// distances.
func rectangle(reps []int16, dims []int) bool {
	stride := make([]int, len(dims)+1)
	begun := make([]int, len(dims)+1) // number of elements that begin at level k or below
	for _, r := range reps {
		for k := int(r); k <= len(dims); k++ {
			begun[k]++
		}
	}
	for k := range stride {
		if begun[k] == 0 || len(reps)%begun[k] != 0 {
			return false
		}
		stride[k] = len(reps) / begun[k]
	}
	for i, r := range reps {
		if i%stride[r] != 0 || r > 0 && i%stride[r-1] == 0 {
			return false
		}
	}
	for k := range dims {
		dims[k] = stride[k] / stride[k+1]
	}
	return true
}
