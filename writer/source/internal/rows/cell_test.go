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
			if got := p.Expr.Holds(func(i int) bool { return p.Conditions[i].Of(&cell) }); got != want {
				t.Errorf("%s: %v of %v (%s)", expr, got, cell.Kind, cell.B)
			}
			if p.Expr.Holds(func(i int) bool { return p.Conditions[i].Of(&none) }) != (expr == "x is null") {
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
		{"x = 0", text(rows.Bool, "true"), false}, {"x < true", text(rows.Bool, "false"), false}, {"x = 3", text(rows.List, "[3]"), false},
		{"x = 18446744073709551615", text(rows.Digits, "18446744073709551615"), true}, {"x != 3", text(rows.Object, "{}"), true},
	} {
		p, err := rows.New(rows.Choice{Where: []string{c.expr}}, []string{"x"}, false, nil)
		if err != nil || p.Conditions[0].Of(&c.cell) != c.want {
			t.Error(c.expr, c.cell.Kind, err)
		}
	}
	p, err := rows.New(rows.Choice{Where: []string{"x > 1970-01-02"}}, []string{"x"}, false, nil)
	if err == nil {
		err = p.Conditions[0].Bind(rows.Time, rows.Time, nil)
	}
	if day := uint64(24 * 3600); err != nil || p.Conditions[0].Of(&rows.Cell{Kind: rows.Time, N: day}) ||
		!p.Conditions[0].Of(&rows.Cell{Kind: rows.Time, N: day, Nano: 1}) {
		t.Error("a time", err)
	}
	for expr, kind := range map[string]rows.Kind{
		"x = a": rows.Integer, "x = b": rows.Float, "x < true": rows.Bool, "x = c": rows.Decimal, "x = 3": rows.Time, "x = []": rows.List,
	} {
		p, err := rows.New(rows.Choice{Where: []string{expr}}, []string{"x"}, false, nil)
		if err != nil || p.Conditions[0].Bind(kind, kind, nil) == nil {
			t.Error(expr, kind, err)
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
