// Package tally counts the names that a source lists and the rows that it reads, and what became of
// them: listed = packed + left out by a rule + refused. Whoever lists one accounts for it.
package tally

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// Rule is why a name or a row was left out. Its text is for people and for programs.
type Rule string

// The rules.
const (
	Fork     Rule = "fork"        // what macOS adds to archives: ._NAME, and all below __MACOSX
	Hidden   Rule = "hidden"      // it begins with a dot; among tables also with an underscore
	Filtered Rule = "filtered"    // by the globs of the user
	Side     Rule = "side file"   // it describes the files that are packed
	Unnamed  Rule = "unnamed"     // the rows name other files
	Unsafe   Rule = "unsafe name" // it cannot be an object
	Null     Rule = "null row"    // a row without a value, which is left out

	// Of rows, and of files of which all rows are.
	Where     Rule = "where"     // the conditions of the user do not hold
	Duplicate Rule = "duplicate" // its shard has its key
	Removed   Rule = "removed"   // from the data set that is packed again
)

// Rows counts the rows that were left out, each by one rule.
type Rows struct{ Where, Filtered, Removed, Null, Duplicate int64 }

// each calls f with the numbers of all rules.
func (r *Rows) each(f func(Rule, *int64)) {
	f(Where, &r.Where)
	f(Filtered, &r.Filtered)
	f(Removed, &r.Removed)
	f(Null, &r.Null)
	f(Duplicate, &r.Duplicate)
}

// RowsOf returns the counts of the rules of rows in what LeftOut returned; others are of names.
func RowsOf(left map[string]int64) (r Rows) {
	r.each(func(rule Rule, n *int64) { *n = max(0, left[string(rule)]) })
	return r
}

// Plus returns the sum of both.
func (r Rows) Plus(o Rows) Rows {
	return Rows{r.Where + o.Where, r.Filtered + o.Filtered, r.Removed + o.Removed, r.Null + o.Null, r.Duplicate +
		o.Duplicate}
}

// Minus returns what r has more than o.
func (r Rows) Minus(o Rows) Rows {
	o.each(func(_ Rule, n *int64) { *n = -*n })
	return r.Plus(o)
}

// LeftOut returns the rules that left out rows, with their numbers.
func (r Rows) LeftOut() map[string]int64 {
	out := map[string]int64{}
	r.each(func(rule Rule, n *int64) {
		if *n != 0 {
			out[string(rule)] = *n
		}
	})
	return out
}

// Total is how many rows were left out.
func (r Rows) Total() (n int64) {
	r.each(func(_ Rule, of *int64) { n += *of })
	return n
}

// mostNames is how many names of a rule are kept, and mostBytes how many bytes of each.
const mostNames, mostBytes = 3, 256

// Tally is a count of names and rows. The zero value is empty and ready to use. It is for one
// goroutine.
type Tally struct {
	// Listed counts all names.
	Listed int64
	left   map[Rule]*left
}

type left struct {
	count int64
	names []string // the first, in ascending order
}

// Leave counts a name that was listed and left out.
func (t *Tally) Leave(rule Rule, name string) {
	t.LeaveMany(rule, 1, name)
}

// LeaveMany counts names that were left out, of which some are given.
//
// The names that are kept are the first by their bytes: folders have no order of their own.
func (t *Tally) LeaveMany(rule Rule, count int64, names ...string) {
	if count == 0 {
		return
	}
	if t.left == nil {
		t.left = map[Rule]*left{}
	}
	l := t.left[rule]
	if l == nil {
		l = &left{}
		t.left[rule] = l
	}
	l.count += count
	for _, name := range names {
		name = name[:min(len(name), mostBytes)]
		if at, known := slices.BinarySearch(l.names, name); at < mostNames && !known {
			l.names = slices.Insert(l.names, at, strings.Clone(name))
			l.names = l.names[:min(len(l.names), mostNames)]
		}
	}
}

// LeaveRows counts rows that were listed and left out.
func (t *Tally) LeaveRows(r Rows) {
	r.each(func(rule Rule, n *int64) { t.LeaveMany(rule, *n) })
}

// Add adds the counts of another tally.
func (t *Tally) Add(o *Tally) {
	t.Listed += o.Listed
	for rule, l := range o.left {
		t.LeaveMany(rule, l.count, l.names...)
	}
}

// Left returns how many names a rule left out.
func (t *Tally) Left(rule Rule) int64 {
	if l := t.left[rule]; l != nil {
		return l.count
	}
	return 0
}

// LeftOut returns the rules that left out names, with their numbers.
func (t *Tally) LeftOut() map[Rule]int64 {
	out := map[Rule]int64{}
	for rule, l := range t.left {
		out[rule] = l.count
	}
	return out
}

// Total is how many names were left out.
func (t *Tally) Total() (n int64) {
	for _, l := range t.left {
		n += l.count
	}
	return n
}

// String lists the rules with their numbers and the first names, or is empty.
func (t *Tally) String() string {
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(t.left)) {
		l := t.left[rule]
		text := fmt.Sprintf("%d %s", l.count, rule)
		if l.count > 1 && (rule == Side || rule == Unsafe || rule == Null || rule == Duplicate) {
			text += "s"
		}
		if len(l.names) > 0 {
			text += fmt.Sprintf(" (%s", strings.Join(l.names, ", "))
			if l.count > int64(len(l.names)) {
				text += ", …"
			}
			text += ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// UnsafeError is the error of a name that a listing has and that cannot be an object.
func UnsafeError(name string) error {
	err := objstore.CheckName(name)
	if err == nil {
		return nil
	}
	return fmt.Errorf("the name %.100q cannot be read: %w: rename it, or leave it out", name, err)
}
