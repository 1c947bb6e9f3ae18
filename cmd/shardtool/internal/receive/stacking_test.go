package receive

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// columnFrame is COLUMNS of some rows.
func columnFrame(rows int, columns string, buffers ...[]byte) []byte {
	sizes := make([]string, len(buffers))
	for i, b := range buffers {
		sizes[i] = fmt.Sprint(len(b))
	}
	return frameOf(kindColumns, columnsOf(fmt.Sprintf(`{"rows":%d,"columns":[%s],"buffers":[%s]}`, rows, columns, strings.Join(sizes, ",")), buffers...))
}

const (
	fixedColumn  = `{"role":"field","name":"x","type":"npy","kind":"fixed","width":2}`
	numberColumn = `{"role":"field","name":"n","type":"int","kind":"number","dtype":"<i2","width":2}`
)

// TestStacks decides about the layout with the first sample, and keeps it where a run continues.
func TestStacks(t *testing.T) {
	header := npy.AppendHeader(nil, "|u1", 2)
	arrays := columnFrame(2, fixedColumn, header, []byte("aabb"))
	both := columnFrame(2, fixedColumn+","+numberColumn, header, []byte("aabb"), []byte{1, 0, 254, 255})
	texts := columnFrame(1, `{"role":"field","name":"t","type":"txt","kind":"var","width":4}`, words(0, 1), []byte("x"))
	list := `{"role":"field","name":"x","type":"npy","kind":"list","dtype":"|u1","width":1}`
	offsets := func(values ...byte) (b []byte) {
		for _, v := range values {
			b = append(b, v, 0, 0, 0, 0, 0, 0, 0)
		}
		return b
	}
	for name, c := range map[string]struct {
		layout string
		frames [][]byte
		want   bool
	}{
		"arrays":               {"", [][]byte{arrays}, true},
		"arrays and numbers":   {"", [][]byte{both}, true},
		"text first":           {"", [][]byte{texts, arrays}, false},
		"no rows first":        {"", [][]byte{columnFrame(0, fixedColumn, header, nil), arrays}, true},
		"even lists":           {"", [][]byte{columnFrame(2, list, offsets(0, 2, 4), []byte("aabb"))}, true},
		"uneven lists":         {"", [][]byte{columnFrame(2, list, offsets(0, 1, 4), []byte("aabb"))}, false},
		"empty lists":          {"", [][]byte{columnFrame(2, list, offsets(0, 0, 0), nil)}, false},
		"numbers as text":      {"", [][]byte{columnFrame(1, strings.Replace(numberColumn, `"n"`, `"a.cls"`, 1), []byte{1, 0})}, false},
		"nulls":                {"", [][]byte{columnFrame(1, strings.Replace(numberColumn, `"int"`, `"int","nulls":true`, 1), []byte{1, 0}, []byte{1})}, false},
		"no array":             {"", [][]byte{columnFrame(2, fixedColumn, []byte("P"), []byte("aabb"))}, false},
		"arrays of text":       {"", [][]byte{columnFrame(2, fixedColumn, npy.AppendHeader(nil, "|S1", 2), []byte("aabb"))}, false},
		"samples asked for":    {"samples", [][]byte{arrays}, false},
		"stacked asked for":    {"stacked", [][]byte{texts}, true},
		"stacked where it can": {"auto", [][]byte{arrays}, false},
	} {
		s := New(&Begin{Layout: c.layout}, bytes.NewReader(bytes.Join(append(c.frames, frameOf(kindEnd, nil)), nil)), nil, func(Place) error { return nil })
		if _, err := s.Next(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Stacks() != c.want {
			t.Errorf("%s: stacked %v", name, s.Stacks())
		}
		later := New(&Begin{Layout: c.layout}, bytes.NewReader(append(texts, frameOf(kindEnd, nil)...)), nil, func(Place) error { return nil })
		if err := later.Seek(t.Context(), s.Cursor()); err != nil {
			t.Fatal(err)
		}
		if _, err := later.Next(t.Context()); err != nil || later.Stacks() != c.want {
			t.Errorf("%s: stacked %v where the run continues, %v", name, later.Stacks(), err)
		}
		_, _ = s.Close(), later.Close()
	}
}

// TestNumbersOfRows makes arrays of numbers, which arrive as columns and as text.
func TestNumbersOfRows(t *testing.T) {
	layout := frameOf(kindLayout, []byte(`{"fields":[{"name":"f","type":"float"},{"name":"n","type":"int"}],"attrs":[]}`))
	run := append(words(0, 2, absent, 3, 2), "1.5-2"...)
	run = append(append(run, words(absent, 1, 1)...), "3x"...)
	s := New(&Begin{Layout: "stacked"}, bytes.NewReader(bytes.Join([][]byte{columnFrame(2, numberColumn, []byte{1, 0, 254, 255}), layout, frameOf(kindSamples, run)}, nil)), nil, func(Place) error { return nil })
	defer s.Close()
	i8, f8 := npy.AppendHeader[int](nil, "<i8"), npy.AppendHeader[int](nil, "<f8")
	for i, want := range [][]string{
		{string(i8) + "\x01\x00\x00\x00\x00\x00\x00\x00"},
		{string(i8) + "\xfe\xff\xff\xff\xff\xff\xff\xff"},
		{string(f8) + "\x00\x00\x00\x00\x00\x00\xf8?", string(i8) + "\xfe\xff\xff\xff\xff\xff\xff\xff"},
	} {
		sample, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range sample.Fields {
			if string(f.Data) != want[k] {
				t.Errorf("sample %d: field %s is %q, not %q", i, f.Name, f.Data, want[k])
			}
		}
	}
	if _, err := s.Next(t.Context()); err == nil || !strings.Contains(err.Error(), `field "n": "x" is not a whole number`) {
		t.Errorf("text where a number belongs: %v", err)
	}
}
