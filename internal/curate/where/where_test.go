package where

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Condition{
		"a=1":               {Column: "a", Op: "=", Word: "1"},
		"a==1":              {Column: "a", Op: "=", Word: "1"},
		" a b >= x y ":      {Column: "a b", Op: ">=", Word: "x y"},
		"a!=":               {Column: "a", Op: "!="},
		"a=''":              {Column: "a", Op: "=", Quoted: true},
		"a<'1 '":            {Column: "a", Op: "<", Word: "1 ", Quoted: true},
		`a>"b=c"`:           {Column: "a", Op: ">", Word: "b=c", Quoted: true},
		"a='it''s'":         {Column: "a", Op: "=", Word: "it's", Quoted: true},
		"a b is null":       {Column: "a b", Op: "is null"},
		"a Is  Not\tNULL":   {Column: "a", Op: "is not null"},
		`"not"  is null`:    {Column: "not", Op: "is null"},
		"`a = b`=1":         {Column: "a = b", Op: "=", Word: "1"},
		"u=http://h/?a=b":   {Column: "u", Op: "=", Word: "http://h/?a=b"},
		"f=g(x, y)":         {Column: "f", Op: "=", Word: "g(x, y)"},
		"t>2024-12-31T1:0Z": {Column: "t", Op: ">", Word: "2024-12-31T1:0Z"},
		"not a=1":           {Column: "a", Op: "!=", Word: "1"},
		"not not (a<1)":     {Column: "a", Op: "<", Word: "1"},
		"NOT a is null":     {Column: "a", Op: "is not null"},
		"a = android":       {Column: "a", Op: "=", Word: "android"},
		"island = 1":        {Column: "island", Op: "=", Word: "1"},
		"a in (x)":          {Column: "a", Op: "=", Word: "x"},
		"a not in ('x, y')": {Column: "a", Op: "!=", Word: "x, y", Quoted: true},
	} {
		e, err := Parse(text)
		if err != nil || len(e.Conditions) != 1 {
			t.Errorf("%q: %+v, %v", text, e, err)
			continue
		}
		got := e.Conditions[0]
		want.Text, want.At, want.WordAt = text, got.At, got.WordAt
		want.Unordered = want.Op == "!="
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if strings.Contains(text, got.Column+"=1") && text[got.At:got.At+1] != got.Column[:1] {
			t.Errorf("%q: the column is at %d", text, got.At)
		}
	}
	for _, c := range []struct {
		op            string
		null          bool
		order         int
		ordered, want bool
	}{
		{"is null", true, 0, false, true}, {"is not null", true, 0, false, false}, {"is null", false, 0, false, false}, {"=", true, 0, true, false}, {"!=", true, 1, true, false},
		{"=", false, 0, true, true}, {"=", false, 0, false, false}, {"!=", false, 0, false, true}, {"!=", false, 0, true, false}, {"<", false, -1, true, true},
		{"<", false, -1, false, false}, {"<=", false, 0, true, true}, {">", false, 0, true, false}, {">=", false, 0, true, true}, {">=", false, -1, true, false},
	} {
		if got := (&Condition{Op: c.op, Unordered: c.op == "!="}).Holds(c.null, c.order, c.ordered); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestErrors: an error points at the character.
func TestErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "at character 1, the end: write a column",
		"a":                               "at character 2, the end: write a column",
		"=1":                              `at character 1, "=1": write a column`,
		"a~1":                             "at character 4, the end: write a column",
		"is null":                         "at character 8, the end: write a column",
		"``=1":                            `at character 1, "` + "``=1" + `": write a column`,
		"!":                               `at character 1, "!": write a column`,
		"score >> 3":                      `at character 8, "> 3": write a value`,
		"score => 3":                      `at character 7, "=> 3": there is no operator =>: write >=`,
		"a = 1 and b<>2":                  `at character 12, "<>2": there is no operator <>: write !=`,
		"a > 3 and":                       "at character 10, the end: write a column",
		"a = 1 and b =":                   "at character 14, the end: write a value",
		"(a = 1":                          `at character 1, "(a = 1": this parenthesis is not closed`,
		"a = 1)":                          `at character 6, ")": the expression has ended`,
		"(a = 1 b = 2":                    `at character 1, "(a = 1 b = 2": this parenthesis`,
		"a in 3":                          `at character 6, "3": write a list`,
		"a in (1, )":                      `at character 10, ")": write a value`,
		"a in (1 or 2)":                   `at character 9, "or 2)": write a comma`,
		"a between 1":                     "at character 12, the end: write and",
		"a is 3":                          `at character 6, "3": write null`,
		"a = 'x":                          `at character 5, "'x": this quote is not closed`,
		"größe > 3 and b = 'x":            `at character 19, "'x"`,
		"a = 1 not b = 2":                 `at character 7, "not b = 2": the expression has ended`,
		strings.Repeat("(", 500):          "more than 200 nested",
		strings.Repeat("not ", 500):       "more than 200 nested",
		"a=" + strings.Repeat("b", 2<<20): "longer than 1 MiB",
		"a in (" + strings.Repeat("1,", 20_000) + "1)": "more than 10000 conditions",
	} {
		e, err := Parse(text)
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %+v, %.300v, want %q", text, e, err, want)
		}
		if err != nil && len(err.Error()) > 700 {
			t.Errorf("%.40q: an error of %d bytes", text, len(err.Error()))
		}
	}
}

// tree is an expression by hand: 3-valued logic, where nil is unknown.
type tree struct {
	text string
	eval func(row map[string]*float64) *bool
}

func truth(b bool) *bool { return &b }

func not(x *bool) *bool {
	if x == nil {
		return nil
	}
	return truth(!*x)
}

// both is and; or is not(both(not, not)).
func both(x, y *bool) *bool {
	switch {
	case x != nil && !*x, y != nil && !*y:
		return truth(false)
	case x == nil || y == nil:
		return nil
	}
	return truth(true)
}

func randomTree(rnd *rand.Rand, depth int) tree {
	if depth > 0 && rnd.IntN(4) > 0 {
		a, b := randomTree(rnd, depth-1), randomTree(rnd, depth-1)
		switch rnd.IntN(3) {
		case 0:
			return tree{"not (" + a.text + ")", func(r map[string]*float64) *bool { return not(a.eval(r)) }}
		case 1:
			return tree{"(" + a.text + ") AND(" + b.text + ")", func(r map[string]*float64) *bool { return both(a.eval(r), b.eval(r)) }}
		}
		return tree{"(" + a.text + " or " + b.text + ")", func(r map[string]*float64) *bool { return not(both(not(a.eval(r)), not(b.eval(r)))) }}
	}
	col, v, w := string(rune('a'+rnd.IntN(3))), float64(rnd.IntN(4)), float64(rnd.IntN(4))
	of := func(f func(x float64) bool) func(map[string]*float64) *bool { // Go compares NaN as IEEE 754 says
		return func(r map[string]*float64) *bool {
			if r[col] == nil {
				return nil
			}
			return truth(f(*r[col]))
		}
	}
	switch rnd.IntN(8) {
	case 0:
		return tree{col + " is null", func(r map[string]*float64) *bool { return truth(r[col] == nil) }}
	case 1:
		return tree{"not " + col + " is not null", func(r map[string]*float64) *bool { return truth(r[col] == nil) }}
	case 2:
		return tree{fmt.Sprintf("%s in (%v,%v)", col, v, w), of(func(x float64) bool { return x == v || x == w })}
	case 3:
		return tree{fmt.Sprintf("%s not in (%v, %v)", col, v, w), of(func(x float64) bool { return x != v && x != w })}
	case 4:
		return tree{fmt.Sprintf("%s between %v and %v", col, v, w), of(func(x float64) bool { return v <= x && x <= w })}
	case 5:
		return tree{fmt.Sprintf("%s not between %v and %v", col, v, w), of(func(x float64) bool { return !(v <= x && x <= w) })}
	case 6:
		return tree{fmt.Sprintf("%s == %v", col, v), of(func(x float64) bool { return x == v })}
	}
	return tree{fmt.Sprintf("%s<%v", col, v), of(func(x float64) bool { return x < v })}
}

// TestMeaning compares expressions with three-valued logic by hand, row by row and for many rows at
// once, and through All, with values that are null or NaN.
func TestMeaning(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var rows []map[string]*float64
	for range 200 {
		row := map[string]*float64{}
		for _, col := range []string{"a", "b", "c"} {
			v := float64(rnd.IntN(6))
			if v == 4 {
				v = math.NaN()
			}
			if v != 5 {
				row[col] = &v
			}
		}
		rows = append(rows, row)
	}
	for range 3000 {
		x, y := randomTree(rnd, 4), randomTree(rnd, 2)
		texts, eval := []string{x.text}, x.eval
		if rnd.IntN(4) == 0 {
			texts, eval = append(texts, y.text), func(r map[string]*float64) *bool { return both(x.eval(r), y.eval(r)) }
		}
		e, err := ParseAll(texts)
		if err != nil {
			t.Fatal(err)
		}
		holds := func(row map[string]*float64, k int) bool {
			c, n := &e.Conditions[k], row[e.Conditions[k].Column]
			if n == nil || c.Nulls() {
				return c.Holds(n == nil, 0, false)
			}
			with, _ := ParseNumber(c.Word)
			order, ordered := with.CompareFloat(*n)
			return c.Holds(false, order, ordered)
		}
		bits := e.Bits((len(rows)+63)/64, func(k int, into []uint64) {
			for i, row := range rows {
				if holds(row, k) {
					into[i/64] |= 1 << (i % 64)
				}
			}
		})
		never := e.Never(func(k int) bool {
			for _, row := range rows {
				if holds(row, k) {
					return false
				}
			}
			return true
		})
		for i, row := range rows {
			want := eval(row)
			got := e.Holds(func(k int) bool { return holds(row, k) })
			if got != (want != nil && *want) || got != (bits[i/64]>>(i%64)&1 == 1) || got && never {
				t.Fatalf("%q: row %d: %v, %v", texts, i, got, want)
			}
		}
	}
}

// FuzzParse: no text makes the parser panic or hang, and columns and values of what is accepted are
// parts of the text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a=1", "not (a in (1, 'x''y') or b between 2 and 3) and c is not null", "`a b`<= f(x)", "a = 'é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			_ = err.Error()
			return
		}
		for _, c := range e.Conditions {
			if c.At < 0 || c.WordAt > len(text) || c.Column == "" {
				t.Fatalf("%+v", c)
			}
		}
		_ = e.Holds(func(i int) bool { return i%2 == 0 })
	})
}
