package cost

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of an expression.
const (
	maxText  = 4096 // bytes
	maxDepth = 60   // nested parentheses and signs
	maxPower = 16
	maxDigit = 40
)

// Expr is an arithmetic expression over integer attributes. It is safe for concurrent use.
type Expr struct {
	Text  string
	Names []string // of the attributes, in order of their first use
	code  []step
}

// op is what a step does to the stack of an evaluation.
type op uint8

const (
	opNumber op = iota
	opName
	opNegate
	opPower
	opAdd
	opSub
	opMul
	opDiv
)

// step is a number, the name number of, the power of, or an operator.
type step struct {
	op     op
	of     int
	number *big.Rat
	small  ratio // the number; the zero value if it does not fit
}

// Parse parses an expression: numbers, names of attributes, + - * / ^ and parentheses. A name that
// has other characters than letters, digits, _ and . stands in double quotes. The exponent of ^ is
// a whole number from 0 to 16.
func Parse(text string) (*Expr, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("a cost of %d bytes: at most %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("cost %q: it is not UTF-8", text)
	}
	p := parser{expr: &Expr{Text: strings.Trim(text, " \t\r\n")}}
	p.text = p.expr.Text
	err := p.sum(0)
	if err == nil && p.at < len(p.text) {
		err = p.failed("write one of + - * / ^ before this, or end the expression; a name with such a character goes " +
			"in double quotes")
	}
	if err == nil && len(p.expr.Names) == 0 {
		err = fmt.Errorf("cost %q: it has no attribute, so that all samples cost the same: name one, as in "+
			"tokens + 0.35 * patches", p.text)
	}
	if err != nil {
		return nil, err
	}
	return p.expr, nil
}

// parser is a recursive-descent parser.
type parser struct {
	text string
	at   int
	expr *Expr
}

func (p *parser) failed(format string, args ...any) error {
	at := utf8.RuneCountInString(p.text[:p.at]) + 1
	return fmt.Errorf("cost %q, at character %d: %s", p.text, at, fmt.Sprintf(format, args...))
}

func (p *parser) skip() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

// symbol takes one of some characters.
func (p *parser) symbol(of string) byte {
	p.skip()
	if p.at < len(p.text) && strings.IndexByte(of, p.text[p.at]) >= 0 {
		p.at++
		return p.text[p.at-1]
	}
	return 0
}

func (p *parser) do(op op, of int) { p.expr.code = append(p.expr.code, step{op: op, of: of}) }

func (p *parser) sum(depth int) error {
	err := p.product(depth)
	for err == nil {
		c := p.symbol("+-")
		if c == 0 {
			return nil
		}
		if err = p.product(depth); c == '+' {
			p.do(opAdd, 0)
		} else {
			p.do(opSub, 0)
		}
	}
	return err
}

func (p *parser) product(depth int) error {
	err := p.signed(depth)
	for err == nil {
		c := p.symbol("*/")
		if c == 0 {
			return nil
		}
		if c == '*' && p.at < len(p.text) && p.text[p.at] == '*' {
			return p.failed("a power is written x^2")
		}
		if err = p.signed(depth); c == '*' {
			p.do(opMul, 0)
		} else {
			p.do(opDiv, 0)
		}
	}
	return err
}

func (p *parser) signed(depth int) error {
	if depth > maxDepth {
		return p.failed("more than %d nested parentheses or signs", maxDepth)
	}
	switch p.symbol("+-") {
	case '-':
		err := p.signed(depth + 1)
		p.do(opNegate, 0)
		return err
	case '+':
		return p.signed(depth + 1)
	}
	if err := p.term(depth); err != nil {
		return err
	}
	if p.symbol("^") == 0 {
		return nil
	}
	p.skip()
	begin := p.at
	for p.at < len(p.text) && isDigit(p.text[p.at]) {
		p.at++
	}
	n, err := strconv.Atoi(p.text[begin:p.at])
	if err != nil || n > maxPower || p.at < len(p.text) && p.text[p.at] == '.' {
		p.at = begin
		return p.failed("an exponent is a whole number from 0 to %d", maxPower)
	}
	p.do(opPower, n)
	if p.symbol("^") != 0 {
		p.at--
		return p.failed("write a power of a power with parentheses")
	}
	return nil
}

// term parses a number, a name or parentheses.
func (p *parser) term(depth int) error {
	if p.skip(); p.at == len(p.text) {
		return p.failed("write a number, an attribute or a parenthesis, as in tokens + 0.35 * patches")
	}
	open := p.at
	switch c := p.text[p.at]; {
	case c == '(':
		p.at++
		if err := p.sum(depth + 1); err != nil {
			return err
		}
		if p.symbol(")") == 0 {
			if p.at == len(p.text) {
				p.at = open
				return p.failed("this parenthesis is not closed")
			}
			return p.failed("write one of + - * / ^ or a closing parenthesis before this")
		}
		return nil
	case isDigit(c) || c == '.':
		return p.number()
	case c == '"':
		name, err := p.quoted()
		if err == nil && name == "" {
			p.at = open
			return p.failed("a name has at least one character")
		}
		p.name(name)
		return err
	}
	for p.at < len(p.text) && isName(p.text[p.at]) {
		p.at++
	}
	if p.at == open {
		return p.failed("write a number, an attribute or a parenthesis; a name with other characters than letters, " +
			"digits, _ and . goes in double quotes")
	}
	p.name(p.text[open:p.at])
	return nil
}

func (p *parser) name(name string) {
	i := slices.Index(p.expr.Names, name)
	if i < 0 {
		i = len(p.expr.Names)
		p.expr.Names = append(p.expr.Names, name)
	}
	p.do(opName, i)
}

func (p *parser) number() error {
	begin := p.at
	for p.at < len(p.text) && (isDigit(p.text[p.at]) || p.text[p.at] == '.') {
		p.at++
	}
	word := p.text[begin:p.at]
	r, ok := new(big.Rat), false
	if len(word) <= maxDigit {
		r, ok = r.SetString(word)
	}
	if !ok {
		p.at = begin
		return p.failed("a number is at most %d digits with one point among them, as in 0.35", maxDigit)
	}
	s := step{op: opNumber, number: r}
	if r.Num().IsInt64() && r.Denom().IsInt64() {
		s.small = ratio{r.Num().Int64(), r.Denom().Int64()}
	}
	p.expr.code = append(p.expr.code, s)
	return nil
}

// quoted parses text in quotes, in which the quote is doubled.
func (p *parser) quoted() (string, error) {
	begin := p.at
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		if p.text[p.at] == '"' {
			if p.at++; p.at == len(p.text) || p.text[p.at] != '"' {
				return b.String(), nil
			}
		}
		b.WriteByte(p.text[p.at])
	}
	p.at = begin
	return "", p.failed("this quote is not closed")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isName reports whether a byte may be in a name without quotes. Bytes of letters beyond ASCII may.
func isName(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '.' || c >= utf8.RuneSelf
}
