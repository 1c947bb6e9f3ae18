package where

import (
	"slices"
	"strings"
)

// Limits of an expression.
const (
	maxText       = 1 << 20
	maxConditions = 10_000
	maxDepth      = 200
)

// operators lists longer ones first, so that a prefix match finds the right one.
var operators = []string{"!=", "<=", ">=", "==", "=", "<", ">"}

// wrong are operators of other languages, by what is meant.
var wrong = map[string]string{"!=": "<>", "<=": "=<", ">=": "=>"}

var words = []string{"and", "or", "not", "in", "between", "is"}

const shape = "write a column, one of = != < <= > >=, and a value; or `col in (a, b)`, `col between a and b`, `col is null`; " +
	"join them by and, or, not and parentheses"

// Parse parses an expression. Errors are of type *Error.
func Parse(text string) (*Expr, error) {
	if len(text) > maxText {
		return nil, failure(text, maxText, "the expression is longer than 1 MiB: give a list of keys in a file instead")
	}
	p := parser{text: text, expr: &Expr{Text: text}}
	p.skip()
	if p.at == len(text) {
		return nil, failure(text, p.at, "%s", shape)
	}
	root, err := p.or(0, false)
	if err != nil {
		return nil, err
	}
	if p.skip(); p.at < len(text) {
		return nil, failure(text, p.at, "the expression has ended: write and or or before it")
	}
	p.expr.root = root
	return p.expr, nil
}

// parser is a recursive-descent parser. The argument not of its methods negates what they parse.
type parser struct {
	text string
	at   int
	expr *Expr
}

func (p *parser) skip() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

// word takes a word of the language.
func (p *parser) word(w string) bool {
	p.skip()
	if p.isWord(p.at, w) {
		p.at += len(w)
		return true
	}
	return false
}

// isWord reports whether a word of the language stands at a place, where one may begin.
func (p *parser) isWord(at int, w string) bool {
	end := at + len(w)
	return end <= len(p.text) && strings.EqualFold(p.text[at:end], w) &&
		(end == len(p.text) || strings.ContainsRune(" \t\r\n()\"'`,", rune(p.text[end])))
}

func (p *parser) symbol(s string) bool {
	p.skip()
	if strings.HasPrefix(p.text[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) or(depth int, not bool) (node, error) {
	return p.join("or", not, func() (node, error) {
		return p.join("and", !not, func() (node, error) { return p.term(depth, not) })
	})
}

// join parses terms with a word between them.
func (p *parser) join(word string, all bool, term func() (node, error)) (node, error) {
	first, err := term()
	kids := []node{first}
	for err == nil && p.word(word) {
		var next node
		next, err = term()
		kids = append(kids, next)
	}
	if len(kids) == 1 || err != nil {
		return first, err
	}
	return node{kids: kids, all: all}, nil
}

func (p *parser) term(depth int, not bool) (node, error) {
	if depth > maxDepth {
		return node{}, failure(p.text, p.at, "more than %d nested parentheses or nots", maxDepth)
	}
	if p.word("not") {
		return p.term(depth+1, !not)
	}
	if p.symbol("(") {
		open := p.at - 1
		n, err := p.or(depth+1, not)
		if err == nil && !p.symbol(")") {
			if p.at < len(p.text) {
				return n, failure(p.text, p.at, "write and, or, or a closing parenthesis")
			}
			err = failure(p.text, open, "this parenthesis is not closed")
		}
		return n, err
	}
	return p.condition(not)
}

// condition parses a comparison, in, between, or is null.
func (p *parser) condition(not bool) (node, error) {
	c := Condition{Text: p.text, At: p.at}
	var err error
	if c.Column, err = p.column(); err != nil {
		return node{}, err
	}
	p.skip()
	for _, op := range operators {
		if wrong[op] != "" && p.symbol(wrong[op]) {
			return node{}, failure(p.text, p.at-len(wrong[op]), "there is no operator %s: write %s", wrong[op], op)
		}
		if p.symbol(op) {
			c.Op, c.Unordered = strings.Replace(op, "==", "=", 1), op == "!="
			if err := p.value(&c, false); err != nil {
				return node{}, err
			}
			return p.add(not, c)
		}
	}
	if p.word("is") {
		c.Op = "is null"
		if p.word("not") {
			c.Op = "is not null"
		}
		if !p.word("null") {
			return node{}, failure(p.text, p.at, "write null")
		}
		return p.add(not, c)
	}
	if p.word("not") {
		not = !not
	}
	switch {
	case p.word("in"):
		return p.list(not, c)
	case p.word("between"):
		return p.between(not, c)
	}
	return node{}, failure(p.text, p.at, "%s", shape)
}

// add numbers conditions, of which all or any must hold.
func (p *parser) add(not bool, conditions ...Condition) (node, error) {
	if len(p.expr.Conditions)+len(conditions) > maxConditions {
		return node{}, failure(p.text, p.at, "more than %d conditions: give a list of keys in a file instead", maxConditions)
	}
	n := node{all: not}
	for _, c := range conditions {
		if not {
			c.negate()
		}
		n.kids = append(n.kids, node{of: len(p.expr.Conditions)})
		p.expr.Conditions = append(p.expr.Conditions, c)
	}
	if len(n.kids) == 1 {
		return n.kids[0], nil
	}
	return n, nil
}

func (p *parser) list(not bool, c Condition) (node, error) {
	if !p.symbol("(") {
		return node{}, failure(p.text, p.at, "write a list in parentheses, such as (a, b)")
	}
	var all []Condition
	c.Op = "="
	for more := true; more; more = p.symbol(",") {
		if err := p.value(&c, true); err != nil {
			return node{}, err
		}
		if all = append(all, c); len(all) > maxConditions {
			break
		}
	}
	if len(all) <= maxConditions && !p.symbol(")") {
		return node{}, failure(p.text, p.at, "write a comma or a closing parenthesis")
	}
	return p.add(not, all...) // not in: none of them
}

func (p *parser) between(not bool, c Condition) (node, error) {
	low, high := c, c
	low.Op, high.Op = ">=", "<="
	if err := p.value(&low, false); err != nil {
		return node{}, err
	}
	if !p.word("and") {
		return node{}, failure(p.text, p.at, "write and, and the upper limit")
	}
	if err := p.value(&high, false); err != nil {
		return node{}, err
	}
	n, err := p.add(not, low, high)
	n.all = !not
	return n, err
}

// column parses the name of a column: in quotes, or up to an operator or a word of the language.
func (p *parser) column() (string, error) {
	p.skip()
	if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '`') {
		begin := p.at
		name, err := p.quoted()
		if err == nil && name == "" {
			err = failure(p.text, begin, "%s", shape)
		}
		return name, err
	}
	begin := p.at
	for p.at < len(p.text) && !strings.ContainsRune("=!<>()", rune(p.text[p.at])) {
		if p.at > begin && p.wordBegins(p.at) {
			break
		}
		p.at++
	}
	name := strings.TrimSpace(p.text[begin:p.at])
	if name == "" || slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, name) }) {
		return "", failure(p.text, begin, "%s", shape)
	}
	return name, nil
}

// wordBegins reports whether a word of the language follows a blank or parenthesis at a place.
func (p *parser) wordBegins(at int) bool {
	return strings.ContainsRune(" \t\r\n)", rune(p.text[at-1])) && slices.ContainsFunc(words,
		func(w string) bool { return p.isWord(at, w) })
}

// value parses the value of a condition.
func (p *parser) value(c *Condition, inList bool) error {
	p.skip()
	c.WordAt, c.Quoted = p.at, false
	if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\'') {
		c.Quoted = true
		var err error
		c.Word, err = p.quoted()
		return err
	}
	depth := 0
	begin := p.at
	for ; p.at < len(p.text); p.at++ {
		switch ch := p.text[p.at]; {
		case ch == '(':
			depth++
		case ch == ')' && depth == 0, ch == ',' && inList && depth == 0:
			return p.bare(c, begin)
		case ch == ')':
			depth--
		case p.at == begin && strings.ContainsRune("=!<>", rune(ch)), p.at > begin && depth == 0 && p.wordBegins(p.at):
			return p.bare(c, begin)
		}
	}
	return p.bare(c, begin)
}

func (p *parser) bare(c *Condition, begin int) error {
	c.Word = strings.TrimSpace(p.text[begin:p.at])
	// `col=` and `col!=` alone compare with the empty text.
	empty := p.at == len(p.text) && len(p.expr.Conditions) == 0 && c.At == 0 && (c.Op == "=" || c.Op == "!=")
	if c.Word == "" && !empty {
		return failure(p.text, begin, "write a value; one that is empty, or is a word of the language, in quotes")
	}
	return nil
}

// quoted parses text in quotes, in which the quote is doubled.
func (p *parser) quoted() (string, error) {
	begin, quote := p.at, p.text[p.at]
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		if p.text[p.at] == quote {
			if p.at++; p.at == len(p.text) || p.text[p.at] != quote {
				return b.String(), nil
			}
		}
		b.WriteByte(p.text[p.at])
	}
	return "", failure(p.text, begin, "this quote is not closed")
}
