// Package where parses the expressions by which rows and samples are filtered, such as
//
//	score >= 3 and (lang in (de, fr) or label is null) and not width between 1 and 63
//
// An expression consists of conditions, joined by and, or, not and parentheses. A condition
// compares a column with values: = (or ==), !=, <, <=, >, >=, in (…), between … and …, or tests for
// null. Words of the language are not case-sensitive. A value without quotes ends at the next word
// of the language, or at a parenthesis or comma that belongs to the expression; in single or double
// quotes it may be anything, and a quote is doubled. Names of columns may be in double quotes or
// backquotes.
//
// A comparison with null is unknown, as in SQL, and so is its negation: neither holds. NaN, and
// what cannot be compared with the value, differs from it and is neither less nor greater, as in
// IEEE 754: of a comparison and its negation, one holds. Numbers and text have no order: callers
// refuse < <= > >= between them. A number in quotes is text.
package where

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/hint"
)

// Condition is one condition on a row or sample. Expressions have no others: in and between are
// written as these, and not becomes their opposites.
type Condition struct {
	// Text is the whole expression as the user wrote it, At the byte in it where the condition
	// begins, and WordAt where its value begins.
	Text       string
	At, WordAt int
	// Column is the name before Op: a column or an attribute.
	Column string
	// Op is one of = != < <= > >=, "is null" and "is not null".
	Op string
	// Word is the value after Op.
	Word string
	// Quoted reports whether Word was in quotes.
	Quoted bool
	// Unordered reports whether the condition holds for what has no order with Word, such as NaN: it
	// is !=, or the negation of a comparison.
	Unordered bool
}

// Nulls reports whether the condition tests for null.
func (c *Condition) Nulls() bool { return c.Op == "is null" || c.Op == "is not null" }

// Orders reports whether the condition asks for an order, which numbers and text do not have.
func (c *Condition) Orders() bool { return c.Op[0] == '<' || c.Op[0] == '>' }

// Letters is the error of a number that text is ordered with. what is the text, as in "column x is
// text".
func (c *Condition) Letters(what string) error {
	return c.WordErrorf("%s, and %s is a number: write %s %s '%s' to compare letters", what, c.Word, c.Column, c.Op, c.Word)
}

// Holds reports whether the condition holds for a value that is null, or that compares as order
// with Word. ordered is false if the two have no order. No comparison holds for null.
func (c *Condition) Holds(null bool, order int, ordered bool) bool {
	switch {
	case c.Op == "is null":
		return null
	case c.Op == "is not null":
		return !null
	case null:
		return false
	case !ordered:
		return c.Unordered
	case c.Op == "!=":
		return order != 0
	case c.Op == "=":
		return order == 0
	case c.Op == "<":
		return order < 0
	case c.Op == "<=":
		return order <= 0
	case c.Op == ">":
		return order > 0
	}
	return order >= 0
}

// negate makes the condition its opposite, for values that are not null.
func (c *Condition) negate() {
	c.Op = map[string]string{
		"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "is null": "is not null",
		"is not null": "is null",
	}[c.Op]
	c.Unordered = !c.Unordered && !c.Nulls()
}

// Errorf is an error at the column of the condition.
func (c *Condition) Errorf(format string, args ...any) error {
	return failure(c.Text, c.At, format, args...)
}

// WordErrorf is an error at the value of the condition.
func (c *Condition) WordErrorf(format string, args ...any) error {
	return failure(c.Text, c.WordAt, format, args...)
}

// Error is an error at a character of an expression. It comes in a *hint.OptionError, which names
// the expression.
type Error struct {
	Text string
	At   int // the byte
	Err  error
}

// Error names the character, counted from 1, and what is there.
func (e *Error) Error() string {
	rest := []rune(e.Text[e.At:])
	what := "the end"
	if len(rest) > 0 {
		what = fmt.Sprintf("%q", string(rest[:min(len(rest), 12)]))
	}
	return fmt.Sprintf("at character %d, %s: %v", utf8.RuneCountInString(e.Text[:e.At])+1, what, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func failure(text string, at int, format string, args ...any) error {
	return &hint.OptionError{Option: "where", Value: strconv.Quote(clip(text)),
		Err: &Error{text, min(at, len(text)), fmt.Errorf(format, args...)}}
}

// clip shortens a long text.
func clip(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Expr is an expression. It is immutable and safe for concurrent use.
type Expr struct {
	// Text is the expression as the user wrote it.
	Text string
	// Conditions are numbered in the order in which they are written.
	Conditions []Condition
	root       node
}

// node is a condition, or several nodes of which all or any must hold.
type node struct {
	of   int    // number of the condition; when kids is nil
	kids []node // at least two
	all  bool
}

// Holds reports whether the expression holds, given for each condition whether it does.
func (e *Expr) Holds(holds func(condition int) bool) bool { return e.root.holds(holds) }

func (n *node) holds(of func(int) bool) bool {
	if n.kids == nil {
		return of(n.of)
	}
	for i := range n.kids {
		if n.kids[i].holds(of) != n.all {
			return !n.all
		}
	}
	return n.all
}

// Never reports whether the expression holds for no row, given for which conditions that is known.
func (e *Expr) Never(never func(condition int) bool) bool { return e.root.never(never) }

func (n *node) never(of func(int) bool) bool {
	if n.kids == nil {
		return of(n.of)
	}
	for i := range n.kids {
		if n.kids[i].never(of) == n.all { // one of those that must all hold, or all of the others
			return n.all
		}
	}
	return !n.all
}

// Bits evaluates the expression for many rows at once: bits calls of for a condition to set a bit
// for each row for which it holds, in words that are zero. The result is valid until of is called
// again for another expression; words is how many 64-bit words the rows take.
func (e *Expr) Bits(words int, of func(condition int, into []uint64)) []uint64 {
	into := make([]uint64, words)
	e.root.bits(into, of)
	return into
}

func (n *node) bits(into []uint64, of func(int, []uint64)) {
	if n.kids == nil {
		of(n.of, into)
		return
	}
	n.kids[0].bits(into, of)
	part := make([]uint64, len(into))
	for i := range n.kids[1:] {
		clear(part)
		n.kids[1+i].bits(part, of)
		for w, x := range part {
			if n.all {
				into[w] &= x
			} else {
				into[w] |= x
			}
		}
	}
}

// All joins expressions that must all hold. It returns nil for none.
func All(exprs []*Expr) *Expr {
	if len(exprs) < 2 {
		if len(exprs) == 1 {
			return exprs[0]
		}
		return nil
	}
	all := &Expr{root: node{all: true}}
	for i, e := range exprs {
		if i > 0 {
			all.Text += " and "
		}
		all.Text += "(" + e.Text + ")"
		all.root.kids = append(all.root.kids, e.root.shifted(len(all.Conditions)))
		all.Conditions = append(all.Conditions, e.Conditions...)
	}
	return all
}

// ParseAll parses texts that must all hold. It returns nil for none.
func ParseAll(texts []string) (*Expr, error) {
	var exprs []*Expr
	for _, text := range texts {
		e, err := Parse(text)
		if err != nil {
			return nil, err
		}
		exprs = append(exprs, e)
	}
	return All(exprs), nil
}

// shifted is the node with higher numbers of conditions.
func (n node) shifted(by int) node {
	n.of += by
	kids := n.kids
	n.kids = nil
	for _, k := range kids {
		n.kids = append(n.kids, k.shifted(by))
	}
	return n
}
