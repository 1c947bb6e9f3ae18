package rows_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// words is a format: a row is words such as a=1, and a value that is - is null.
type words struct{ *rows.Column }

func (w words) AddFields(to *rows.Samples) error {
	if string(w.Cell.B) == "bad" {
		return errors.New("it is bad")
	}
	return to.Add(w.Name+".txt", w.Cell.B)
}

func (w words) Empty() (string, error) { return w.Name + ".txt", nil }

// TestWalk: what becomes of a row, whatever the format.
func TestWalk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		choice    rows.Choice
		row, want string
	}{
		{rows.Choice{}, "a=1 b=2", "f/000000007 a.txt=1 b.txt=2"},
		{rows.Choice{}, "a=1 b=-", "f/000000007 a.txt=1"},
		{rows.Choice{Key: "a"}, "a=1 b=2", "1 b.txt=2"},
		{rows.Choice{Key: "a", Columns: []string{"a"}}, "a=1 b=2", "1 a.txt=1"},
		{rows.Choice{Key: "a"}, "b=2", `! the key, column "a", is missing: choose another one of "b", or leave`},
		{rows.Choice{Key: "a"}, "a=- b=2", `! the key, column "a", is null: leave`},
		{rows.Choice{Key: "a"}, "a=x.y b=2", `! the key, column "a": `},
		{rows.Choice{Where: []string{"a < 2"}}, "a=1", "f/000000007 a.txt=1"},
		{rows.Choice{Where: []string{"a < 2"}}, "a=2", "left out"},
		{rows.Choice{Where: []string{"a is null"}}, "b=2", "f/000000007 b.txt=2"},
		{rows.Choice{Attrs: map[string]string{"n": "b"}, Columns: []string{"a"}}, "a=1 b=2", "f/000000007 a.txt=1 n:2"},
		{rows.Choice{Attrs: map[string]string{"n": "b"}, Columns: []string{"a"}}, "a=1 b=-", "f/000000007 a.txt=1"},
		{rows.Choice{}, "a=- b=-", "! all columns are null"},
		{rows.Choice{Nulls: source.NullsSkip}, "a=-", "left out: all columns are null"},
		{rows.Choice{Nulls: source.NullsEmpty}, "a=- b=-", "f/000000007 a.txt= b.txt="},
		{rows.Choice{Nulls: source.NullsEmpty, Columns: []string{"b", "c"}}, "a=1 b=-", "f/000000007 b.txt= c.txt="},
		{rows.Choice{Columns: []string{"c"}}, "a=1 b=-", `! the row has no value in the columns c: it has "a", "b"`},
		{rows.Choice{}, "a=bad", "! it is bad, at a"},
		{rows.Choice{}, "m=1", "f/000000007 m.mask=true m.txt=1"},
		{rows.Choice{}, "a=1 m=-", "f/000000007 a.txt=1 m.mask=false m=0"},
		{rows.Choice{Nulls: source.NullsEmpty}, "m=-", "f/000000007 m=0 m.mask=false"},
		{rows.Choice{Columns: []string{"a", "day"}}, "a=1", "folder f/000000007 a.txt=1 day.txt=3"},
		{rows.Choice{Columns: []string{"a", "day"}}, "a=1 day=3", "folder f/000000007 a.txt=1 day.txt=3"},
		{rows.Choice{}, "a=1 day=4", `folder ! the column "day" is in the file and in the folder day=3, and is "4" in the file`},
		{rows.Choice{Where: []string{"day = 4"}, Columns: []string{"a"}}, "a=1", "folder left out"},
		{rows.Choice{Columns: []string{"a"}}, "a=1 day=4", "folder f/000000007 a.txt=1"},
	} {
		file, want := inputs.File{Stem: "f"}, c.want
		if rest, is := strings.CutPrefix(want, "folder "); is {
			want, file.Constants = rest, []inputs.Constant{{Name: "day", Folder: "day=3", Integer: true, N: 3, Text: "3"}}
		}
		if got := walk(t, c.choice, &file, c.row); got != want && (!strings.HasPrefix(want, "!") || !strings.HasPrefix(got, want)) {
			t.Errorf("%+v, %s: %s, want %s", c.choice, c.row, got, want)
		}
	}
}

// walk takes a row twice, as the second is after a row with other columns, and describes it.
func walk(t *testing.T, choice rows.Choice, file *inputs.File, row string) string {
	p, err := rows.New(choice, nil, true, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]*rows.Column{}
	find := func(name string) *rows.Column {
		if columns[name] == nil {
			c := p.Column(name)
			if columns[name] = &c; name == "m" {
				c.Mask, c.Zero = "m.mask", writer.Field{Name: "m", Data: []byte("0")}
			}
			columns[name].Form = words{&c}
		}
		return columns[name]
	}
	w := p.Walk(find)
	var to rows.Samples
	var text []string
	for range 2 {
		for _, row := range []string{"z=1", row} {
			to.Reset()
			w.Next(file)
			for _, word := range strings.Fields(row) {
				name, value, _ := strings.Cut(word, "=")
				c := find(name)
				if c.Cell = (rows.Cell{Kind: rows.Word, B: []byte(value)}); value == "-" {
					c.Cell.Kind = rows.Null
				}
				w.Has = append(w.Has, c)
			}
			ok, err := w.Take(7, &to)
			text = append(text, describe(p, w, &to, ok, err))
		}
	}
	if text[1] != text[3] {
		t.Errorf("%s, and again: %s", text[1], text[3])
	}
	return text[1]
}

func describe(p *rows.Plan, w *rows.Walk, to *rows.Samples, ok bool, err error) string {
	var refused *writer.SampleError
	if err != nil && !errors.As(p.Refused(writer.Sample{}, err), &refused) {
		return "an error that is none of a sample"
	}
	switch {
	case err != nil && refused.LeaveOut:
		return fmt.Sprintf("left out: %.20v", err)
	case err != nil && w.At != nil:
		return fmt.Sprintf("! %v, at %s", err, w.At.Name)
	case err != nil:
		return "! " + err.Error()
	case !ok:
		return "left out"
	}
	out := string(to.Keys)
	for _, f := range to.Fields {
		if strings.HasSuffix(f.Name, ".mask") {
			out += fmt.Sprintf(" %s=%t", f.Name, f.Data[len(f.Data)-1] == 1)
		} else {
			out += fmt.Sprintf(" %s=%s", f.Name, f.Data)
		}
	}
	for _, a := range to.Attrs {
		out += " " + a.Name + ":" + a.Label
	}
	return out
}
