// Package where parses conditions such as width>=256 or `label is null`, by which rows and samples
// are filtered.
package where

import (
	"fmt"
	"strings"
)

// Condition is one condition on a row or sample.
type Condition struct {
	// Text is the condition as the user wrote it.
	Text string
	// Column is the name before Op: a column or an attribute.
	Column string
	// Op is one of = != < <= > >=, "is null" and "is not null".
	Op string
	// Word is the value after Op.
	Word string
	// Quoted reports whether Word was in quotes.
	Quoted bool
}

// operators lists longer ones first, so that a prefix match finds the right one.
var operators = []string{"!=", "<=", ">=", "=", "<", ">"}

// Parse parses a condition. The value may be in single or double quotes.
func Parse(text string) (Condition, error) {
	c := Condition{Text: text}
	words := strings.Fields(text)
	if n := len(words); n >= 3 && strings.EqualFold(words[n-2], "is") && strings.EqualFold(words[n-1], "null") {
		c.Op = "is null"
		c.Column = strings.TrimSpace(text[:len(text)-len(lastWords(text, 2))])
		return c, nil
	} else if n >= 4 && strings.EqualFold(strings.Join(words[n-3:], " "), "is not null") {
		c.Op = "is not null"
		c.Column = strings.TrimSpace(text[:len(text)-len(lastWords(text, 3))])
		return c, nil
	}
	at := strings.IndexAny(text, "!=<>")
	if at > 0 {
		for _, op := range operators {
			if rest, ok := strings.CutPrefix(text[at:], op); ok {
				c.Column, c.Op, c.Word = strings.TrimSpace(text[:at]), op, strings.TrimSpace(rest)
				break
			}
		}
	}
	if c.Op == "" || c.Column == "" {
		return c, fmt.Errorf("where %q: write a column, one of = != < <= > >=, and a value; or `col is null`, `col is not null`", text)
	}
	if n := len(c.Word); n >= 2 && (c.Word[0] == '"' || c.Word[0] == '\'') && c.Word[n-1] == c.Word[0] {
		c.Word, c.Quoted = c.Word[1:n-1], true
	}
	return c, nil
}

// lastWords returns the end of text, from its nth last word on.
func lastWords(text string, n int) string {
	end := strings.TrimRight(text, " \t")
	for range n {
		end = strings.TrimRight(end, " \t")
		end = end[:strings.LastIndexAny(end, " \t")+1]
	}
	return text[len(end):]
}

// Nulls reports whether the condition tests for null.
func (c *Condition) Nulls() bool { return c.Op == "is null" || c.Op == "is not null" }

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
	case c.Op == "!=":
		return !ordered || order != 0
	case !ordered:
		return false
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
