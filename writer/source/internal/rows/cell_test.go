package rows_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

func text(kind rows.Kind, b string) rows.Cell { return rows.Cell{Kind: kind, B: []byte(b)} }

func float(f float64) rows.Cell { return rows.Cell{Kind: rows.Float, N: math.Float64bits(f)} }

func array(n int64) rows.Cell {
	return rows.Cell{Kind: rows.Array, B: binary.LittleEndian.AppendUint64(npy.AppendHeader(nil, "<i8", 1), uint64(n))}
}

// TestConditions: a number compares alike in each form that formats have for it.
func TestConditions(t *testing.T) {
	t.Parallel()
	three := []rows.Cell{
		text(rows.Word, "3"), text(rows.Digits, "3"), text(rows.Number, "3.0"), text(rows.Decimal, "3.00"), array(3), float(3),
		{Kind: rows.Integer, N: 3}, {Kind: rows.Unsigned, N: 3},
	}
	none := rows.Cell{}
	for expr, want := range map[string]bool{
		"x = 3": true, "x != 3": false, "x > 2.5": true, "x < 3": false, "x in (1, 3)": true, "x between 4 and 5": false,
		"not x = 3": false, "x is null": false, "x is not null": true,
	} {
		for _, cell := range three {
			p, err := rows.New(rows.Choice{Where: []string{expr}}, []string{"x"}, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Conditions {
				if err := c.Bind(cell.Kind, cell.Kind, nil); err != nil {
					t.Fatal(expr, err)
				}
			}
			of := func(cell *rows.Cell) func(int) bool {
				return func(i int) bool {
					holds, err := p.Conditions[i].Of(cell)
					if err != nil {
						t.Error(expr, err)
					}
					return holds
				}
			}
			if got := p.Expr.Holds(of(&cell)); got != want {
				t.Errorf("%s: %v of %v (%s)", expr, got, cell.Kind, cell.B)
			}
			if p.Expr.Holds(of(&none)) != (expr == "x is null") {
				t.Errorf("%s: null", expr)
			}
		}
	}
}

// TestWords: what a condition compares with decides how text compares, and a word that goes with no
// cell of a column is refused.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr string
		cell rows.Cell
		want bool
	}{
		{"x = 03", text(rows.Word, "3"), true}, {"x = '03'", text(rows.Word, "3"), false}, {"x = 03", text(rows.Text, "3"), false},
		{"x != a", text(rows.Digits, "3"), true}, {"x = a", text(rows.Digits, "3"), false}, {"x = true", text(rows.Bool, "true"), true},
		{"x = 0", text(rows.Bool, "true"), false}, {"x = 3", text(rows.List, "[3]"), false},
		{"x = 18446744073709551615", text(rows.Digits, "18446744073709551615"), true}, {"x != 3", text(rows.Object, "{}"), true},
	} {
		p, err := rows.New(rows.Choice{Where: []string{c.expr}}, []string{"x"}, false, nil)
		if err != nil {
			t.Fatal(c.expr, err)
		}
		if got, err := p.Conditions[0].Of(&c.cell); err != nil || got != c.want {
			t.Error(c.expr, c.cell.Kind, err)
		}
	}
	p, err := rows.New(rows.Choice{Where: []string{"x > 1970-01-02"}}, []string{"x"}, false, nil)
	if err == nil {
		err = p.Conditions[0].Bind(rows.Time, rows.Time, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for nano := range uint32(2) {
		got, err := p.Conditions[0].Of(&rows.Cell{Kind: rows.Time, N: 24 * 3600, Nano: nano})
		if err != nil || got != (nano > 0) {
			t.Error("a time", nano, err)
		}
	}
	for expr, kind := range map[string]rows.Kind{
		"x = a": rows.Integer, "x = b": rows.Float, "x < true": rows.Bool, "x = c": rows.Decimal, "x = 3": rows.Time, "x = []": rows.List,
		"x > 3": rows.Text, "x <= 3": rows.Bytes,
	} {
		p, err := rows.New(rows.Choice{Where: []string{expr}}, []string{"x"}, false, nil)
		if err != nil || p.Conditions[0].Bind(kind, kind, nil) == nil {
			t.Error(expr, kind, err)
		}
	}
}

// TestOrder: a number and text have no order, unless the text is in quotes and the cell is a word.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr        string
		cell        rows.Cell
		want, fails bool
	}{
		{"x > 0,5", text(rows.Word, "0.7"), false, true}, {"x < high", text(rows.Digits, "3"), false, true},
		{"x <= 50 EUR", text(rows.Number, "9.5"), false, true}, {"x < high", float(3), false, true},
		{"x < '3'", text(rows.Digits, "2"), false, true}, {"x < '10'", text(rows.Word, "9"), false, false},
		{"x > 50", text(rows.Word, "n/a"), false, true}, {"x > 50", text(rows.Text, "100"), false, true},
		{"not x > 50", text(rows.Text, "100"), false, true}, {"x > '50'", text(rows.Text, "6"), true, false},
		{"x > 2024-01-03", text(rows.Word, "2024-01-04"), true, false}, {"x > 1.9.2", text(rows.Word, "1.10"), false, true},
		{"x > 3", text(rows.Word, "NaN"), false, false}, {"x > 3", text(rows.List, "[4]"), false, true},
		{"x > 3", rows.Cell{Kind: rows.Null}, false, false}, {"x != n/a", text(rows.Word, "4"), true, false},
	} {
		p, err := rows.New(rows.Choice{Where: []string{c.expr}}, []string{"x"}, false, nil)
		if err != nil {
			t.Fatal(c.expr, err)
		}
		if got, err := p.Conditions[0].Of(&c.cell); got != c.want || (err != nil) != c.fails {
			t.Errorf("%s of %v (%s): %v, %v", c.expr, c.cell.Kind, c.cell.B, got, err)
		}
	}
}

// TestAttributes: values become integers, numbers and labels, or an error that shows them.
func TestAttributes(t *testing.T) {
	t.Parallel()
	labels := []string{"cat", "dog"}
	for _, c := range []struct {
		kind   format.AttrKind
		cell   rows.Cell
		want   format.AttrValue
		ok     bool
		failed bool
	}{
		{format.AttrInteger, text(rows.Word, "-7"), format.AttrValue{Integer: -7}, true, false},
		{format.AttrInteger, text(rows.Bool, "true"), format.AttrValue{Integer: 1}, true, false},
		{format.AttrInteger, array(5), format.AttrValue{Integer: 5}, true, false},
		{format.AttrInteger, text(rows.Number, "1.5"), format.AttrValue{}, false, true},
		{format.AttrInteger, rows.Cell{Kind: rows.Unsigned, N: 1 << 63}, format.AttrValue{}, false, true},
		{format.AttrNumber, text(rows.Digits, "2"), format.AttrValue{Number: 2}, true, false},
		{format.AttrNumber, float(0.5), format.AttrValue{Number: 0.5}, true, false},
		{format.AttrNumber, text(rows.Text, "2"), format.AttrValue{}, false, true},
		{format.AttrLabel, rows.Cell{Kind: rows.Integer, N: 1}, format.AttrValue{Label: "dog"}, true, false},
		{format.AttrLabel, rows.Cell{Kind: rows.Integer, N: math.MaxUint64}, format.AttrValue{}, false, false},
		{format.AttrLabel, text(rows.Bytes, "\xff"), format.AttrValue{}, false, true},
		{format.AttrLabel, text(rows.List, "[]"), format.AttrValue{}, false, true},
		{format.AttrLabel, rows.Cell{}, format.AttrValue{}, false, false},
	} {
		a := rows.Attr{Attribute: format.Attribute{Name: "a", Kind: c.kind}, Column: "x", Labels: labels}
		got, ok, err := a.Value(&c.cell)
		if ok != c.ok || (err != nil) != c.failed {
			t.Fatal(c.kind, c.cell.Kind, ok, err)
		}
		if c.want.Attribute = a.Attribute; ok && got != c.want {
			t.Errorf("%v of %v: %+v", c.kind, c.cell.Kind, got)
		}
	}
}
