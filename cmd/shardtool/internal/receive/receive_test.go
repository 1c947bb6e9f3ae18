package receive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func frameOf(kind byte, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(kind)<<56|uint64(len(body))), body...)
}

func words(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

const aLayout = `{"fields":[{"name":"a","type":"txt"},{"name":"b","type":"int"}],"attrs":[{"name":"n","kind":"int"}]}`

// columnsOf is the body of COLUMNS.
func columnsOf(head string, buffers ...[]byte) []byte {
	return append(append(words(0, uint32(len(head))), head...), bytes.Join(buffers, nil)...)
}

func source(ready *int64, frames ...[]byte) *Source {
	return New(&Begin{KeyPrefix: "p-"}, bytes.NewReader(bytes.Join(frames, nil)), nil, func(at Place) error {
		if ready != nil {
			*ready = at.Samples
		}
		return nil
	})
}

// texts reads all samples as text.
func texts(ctx context.Context, s *Source) (out []string, err error) {
	defer s.Close()
	for {
		sample, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		text := sample.Key + ":"
		for _, f := range sample.Fields {
			text += fmt.Sprintf(" %s=%q", f.Name, f.Data)
		}
		for _, a := range sample.Attrs {
			text += fmt.Sprintf(" %s:%d%s", a.Name, a.Integer, a.Label)
		}
		out = append(out, text)
	}
}

func TestSource(t *testing.T) {
	samples := append(words(absent, 4, 3, 0, 1, 0, 2, 1, 0, 2, 3, 1, 2, 2), "keyx1242"...)
	samples = append(append(samples, words(absent, 0, 1, 1)...), "70"...)
	head := `{"rows":2,"columns":[
		{"role":"field","name":"a","type":"txt","kind":"var","width":4,"nulls":true},
		{"role":"field","name":"c","type":"npy","kind":"fixed","width":2},
		{"role":"field","name":"d","type":"int","kind":"number","dtype":"<i2","width":2},
		{"role":"field","name":"e","type":"json","kind":"bools","width":1,"data_bit":1},
		{"role":"attr","name":"n","type":"str","kind":"var","width":4}],
		"buffers":[12,3,1,1,4,4,1,12,2]}`
	buffers := [][]byte{words(0, 2, 3), []byte("hix"), {2}, []byte("P"), []byte("aabb"), {1, 0, 254, 255}, {2}, words(0, 1, 2), []byte("vw")}
	var ready int64
	s := source(&ready, frameOf(kindLayout, []byte(aLayout)), frameOf(kindSamples, samples), frameOf(kindColumns, columnsOf(head, buffers...)), frameOf(kindEnd, nil))
	if err := s.Seek(t.Context(), `{"samples":7,"input":3,"since":1,"types":{"z":"float"}}`); err != nil {
		t.Fatal(err)
	}
	got, err := texts(t.Context(), s)
	want := []string{
		`key: a="x" b="12" n:42`, `p-000000008: a="" b="7" n:0`,
		`p-000000009: c="Paa" d="1" e="true" n:0v`, `p-000000010: a="x" c="Pbb" d="-2" e="false" n:0w`,
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") || ready != 7 {
		t.Errorf("%q, %v, ready %d; want %q", got, err, ready, want)
	}
	if c := s.Cursor(); c != `{"samples":11,"input":6,"since":1,"types":{"a":"txt","b":"int","c":"npy","d":"int","e":"json","z":"float"}}` {
		t.Errorf("cursor %s", c)
	}
	if s.Learned()[writer.MetaTypes] == "" {
		t.Error("no types")
	}
	for _, cursor := range []string{"", "x", "3", "{}", `{"samples":-1,"types":{}}`, `{"samples":1,"since":2,"types":{}}`, `{"input":-1,"types":{}}`} {
		if s := source(nil); s.Seek(t.Context(), cursor) == nil {
			t.Errorf("cursor %q was accepted", cursor)
		}
	}
}

// STATE is answered in order: after the samples that precede it.
func TestState(t *testing.T) {
	samples := append(words(0, 1, 3, 1, 1, 1), "keyx11"...)
	s := source(nil, frameOf(kindState, nil), frameOf(kindLayout, []byte(aLayout)), frameOf(kindSamples, samples), frameOf(kindState, nil), frameOf(kindEnd, nil))
	var asked []int64
	s.Asked = func() error {
		asked = append(asked, s.at.Samples)
		return nil
	}
	if got, err := texts(t.Context(), s); len(got) != 1 || err != nil || fmt.Sprint(asked) != "[0 1]" {
		t.Errorf("%q, %v, asked at %v", got, err, asked)
	}
	failed := errors.New("a pipe")
	s = source(nil, frameOf(kindState, nil), frameOf(kindEnd, nil))
	s.Asked = func() error { return failed }
	if _, err := texts(t.Context(), s); !errors.Is(err, failed) {
		t.Errorf("the answer's error: %v", err)
	}
}

// Input that ends early, and frames that no parent sends.
func TestRefused(t *testing.T) {
	l := frameOf(kindLayout, []byte(aLayout))
	sample := append(words(0, 1, 3, 1, 1, 1), "keyx11"...)
	column := func(c string, rows int, buffers ...[]byte) []byte {
		var sizes []int
		for _, b := range buffers {
			sizes = append(sizes, len(b))
		}
		text, _ := json.Marshal(sizes)
		return frameOf(kindColumns, columnsOf(fmt.Sprintf(`{"rows":%d,"columns":[%s],"buffers":%s}`, rows, c, text), buffers...))
	}
	for name, c := range map[string]struct {
		frames []byte
		want   error
	}{
		"nothing":        {nil, ErrLeft},
		"cut head":       {[]byte{1, 2, 3}, ErrLeft},
		"cut body":       {frameOf(kindSamples, sample)[:12], ErrLeft},
		"no END":         {append(l, frameOf(kindSamples, sample)...), ErrLeft},
		"huge":           {binary.LittleEndian.AppendUint64(nil, kindSamples<<56|1<<55), ErrLeft},
		"huge layout":    {binary.LittleEndian.AppendUint64(nil, kindLayout<<56|1<<40), ErrProtocol},
		"kind":           {frameOf(9, nil), ErrProtocol},
		"second BEGIN":   {frameOf(kindBegin, []byte("{}")), ErrProtocol},
		"layout":         {frameOf(kindLayout, []byte("[")), ErrProtocol},
		"attribute":      {frameOf(kindLayout, []byte(`{"attrs":[{"name":"x","kind":"blob"}]}`)), ErrProtocol},
		"no layout":      {frameOf(kindSamples, sample), ErrProtocol},
		"short sample":   {append(l, frameOf(kindSamples, sample[:7])...), ErrProtocol},
		"short lengths":  {append(l, frameOf(kindSamples, sample[:17])...), ErrProtocol},
		"short field":    {append(l, frameOf(kindSamples, sample[:len(sample)-1])...), ErrProtocol},
		"short inputs":   {frameOf(kindSamples, words(absent, 2, 0, 0, 5)), ErrProtocol},
		"no number":      {append(l, frameOf(kindSamples, append(words(0, 1, 0, 0, 0, 1), 'x'))...), ErrProtocol},
		"columns":        {frameOf(kindColumns, words(0, 100)), ErrProtocol},
		"columns JSON":   {frameOf(kindColumns, columnsOf("[")), ErrProtocol},
		"no buffers":     {column(`{"kind":"var","width":4}`, 1), ErrProtocol},
		"offsets fall":   {column(`{"kind":"var","width":4}`, 2, words(0, 3, 1), []byte("abc")), ErrProtocol},
		"offset exceeds": {column(`{"kind":"var","width":4}`, 1, words(0, 4), []byte("abc")), ErrProtocol},
		"offset below 0": {column(`{"kind":"var","width":4}`, 1, words(1<<31, 4), []byte("abcd")), ErrProtocol},
		"few rows":       {column(`{"kind":"fixed","width":4}`, 2, nil, []byte("abcd")), ErrProtocol},
		"no width":       {column(`{"kind":"fixed"}`, 1, nil, []byte("abcd")), ErrProtocol},
		"dtype":          {column(`{"kind":"number","width":8,"dtype":"<c8"}`, 1, make([]byte, 8)), ErrProtocol},
		"narrow":         {column(`{"kind":"number","width":1,"dtype":"<i8"}`, 1, make([]byte, 1)), ErrProtocol},
		"few bits":       {column(`{"kind":"bools","width":1}`, 9, make([]byte, 1)), ErrProtocol},
		"bits below 0":   {column(`{"kind":"bools","width":1,"data_bit":-9}`, 9, make([]byte, 1)), ErrProtocol},
		"few valid":      {column(`{"kind":"bools","width":1,"nulls":true}`, 9, make([]byte, 2), nil), ErrProtocol},
		"many rows":      {column(`{"kind":"bools","width":1}`, 1<<40, make([]byte, 1)), ErrProtocol},
		"column kind":    {column(`{"kind":"x","width":1}`, 1, make([]byte, 1)), ErrProtocol},
		"null key":       {column(`{"role":"key","kind":"var","width":4,"nulls":true}`, 1, words(0, 0), nil, []byte{0}), ErrProtocol},
		"buffer":         {frameOf(kindColumns, columnsOf(`{"rows":1,"columns":[],"buffers":[5]}`)), ErrProtocol},
	} {
		if _, err := texts(t.Context(), source(nil, c.frames)); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	for _, body := range []string{`[`, `{"protocol":99}`} {
		if _, err := ReadBegin(bytes.NewReader(frameOf(kindBegin, []byte(body)))); !errors.Is(err, ErrProtocol) {
			t.Errorf("BEGIN %s: %v", body, err)
		}
	}
}

func FuzzSource(f *testing.F) {
	f.Add(frameOf(kindLayout, []byte(aLayout)))
	f.Add(append(frameOf(kindLayout, []byte(aLayout)), frameOf(kindSamples, append(words(0, 3, 1, 1, 1), "keyx11"...))...))
	f.Add(frameOf(kindColumns, columnsOf(`{"rows":1,"columns":[{"kind":"list","width":4,"dtype":"<f4"}],"buffers":[16,4]}`, make([]byte, 20))))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source(nil, data)
		defer s.Close()
		for range 1000 {
			if _, err := s.Next(t.Context()); err != nil {
				return
			}
		}
	})
}
