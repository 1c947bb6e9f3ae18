package writer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// array is a .npy file of n ids of two bytes.
func array(n int) []byte {
	return append(npy.AppendHeader(nil, "<u2", int64(n)), make([]byte, 2*n)...)
}

// later is a payload that workers read.
type later []byte

func (p later) ReadInto(_ context.Context, to []byte) error {
	copy(to, p)
	return nil
}

func (p later) Open(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(p)), nil
}

// field has its bytes in memory or, if streamed, as a payload.
func field(name string, data []byte, streamed bool) writer.Field {
	if streamed {
		return writer.Field{Name: name, Payload: later(data), Size: int64(len(data))}
	}
	return writer.Field{Name: name, Data: data}
}

// dict is a .npy file with that dictionary.
func dict(version byte, text string, data int) []byte {
	head := []byte(npy.Magic + string(version) + "\x00")
	head = append(head, byte(len(text)), byte(len(text)>>8))
	if version > 1 {
		head = append(head, 0, 0)
	}
	return append(append(head, text...), make([]byte, data)...)
}

// TestLengths stores the length of arrays in memory and of payloads, in blocks of one and of
// several frames, and keeps a value that the source gives.
func TestLengths(t *testing.T) {
	own := format.AttrValue{Attribute: format.Attribute{Name: "tokens", Kind: format.AttrInteger}, Integer: -5}
	for _, streamed := range []bool{false, true} {
		want := map[string]int64{}
		var samples []writer.Sample
		add := func(key string, n int64, data []byte, attrs ...format.AttrValue) {
			want[key] = n
			samples = append(samples, writer.Sample{Key: key, Attrs: attrs, Fields: []writer.Field{
				field("ids.npy", data, streamed), {Name: "a.npy", Data: array(3)}, {Name: "z", Data: []byte("x")},
			}})
		}
		for i := range 300 {
			add(fmt.Sprint("k", i), int64(i), array(i))
		}
		add("huge", 9<<20, array(9<<20)) // 18 MiB: two frames
		add("after", 1, array(1))
		add("own", -5, array(7), own)
		add("version2", 2, dict(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 8))
		add("long header", 0, dict(3, "{'descr': '|b1', 'fortran_order': False, 'shape': (0,)}"+strings.Repeat(" ", 9000), 0))
		add("texts", 4, dict(1, "{'descr': '<U3', 'fortran_order': False, 'shape': (4,)}", 48))
		st := mem.New()
		opt := small("d")
		opt.Lengths = map[string]string{"tokens": "ids.npy", "also": "a.npy"}
		w := newWriter(t, st, opt)
		for _, s := range samples {
			if err := w.Write(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		set := mustLoad(t, st)
		if len(set.Samples) != len(samples) {
			t.Fatalf("%d samples", len(set.Samples))
		}
		for _, s := range set.Samples {
			got := map[string]int64{}
			for _, a := range s.Attrs {
				got[a.Name] = a.Integer
			}
			if len(got) != 2 || got["also"] != 3 || got["tokens"] != want[s.Key] {
				t.Errorf("streamed %v: sample %q has %v, want %d tokens", streamed, s.Key, got, want[s.Key])
			}
			if s.Key == "huge" && len(s.Field("ids.npy")) != len(array(9<<20)) {
				t.Errorf("the huge array has %d bytes", len(s.Field("ids.npy")))
			}
		}
	}
}

// TestNoLength names the sample and the reason, and leaves out just the samples without a length
// when they may be skipped.
func TestNoLength(t *testing.T) {
	for reason, data := range map[string][]byte{
		"has only \"other.npy\"":    nil,
		"it is not an .npy file":    []byte("text"),
		"is truncated: it has 40":   array(9)[:40],
		"less than any header":      array(9)[:8],
		"has 2 dimensions":          dict(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3)}", 12),
		"has 0 dimensions":          dict(1, "{'descr': '<u2', 'fortran_order': False, 'shape': ()}", 2),
		"has 10 bytes: it is trunc": dict(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (9,)}", 10),
		"of 8 bytes has 8 bytes":    dict(1, "{'descr': '<u8', 'fortran_order': False, 'shape': (2305843009213693953,)}", 8), // 2^64+8 bytes
		"claims 4294967295 bytes":   []byte(npy.Magic + "\x02\x00\xff\xff\xff\xff....."),
	} {
		for _, streamed := range []bool{false, true} {
			for _, huge := range []bool{false, true} {
				bad := writer.Sample{Key: "bad", Origin: "bad.npy", Fields: []writer.Field{field("ids.npy", data, streamed)}}
				if data == nil {
					bad.Fields[0] = field("other.npy", array(2), streamed)
				}
				if huge {
					bad.Fields = append(bad.Fields, writer.Field{Name: "pad", Data: make([]byte, 17<<20)})
				}
				checkNoLength(t, bad, reason)
			}
		}
	}
}

func checkNoLength(t *testing.T, bad writer.Sample, reason string) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		opt := small("d")
		opt.Lengths = map[string]string{"tokens": "ids.npy"}
		var skipped []string
		if skip {
			opt.Faults.Skip = true
			opt.Faults.Skipped = func(e *writer.SampleError) { skipped = append(skipped, e.Error()) }
		}
		st := mem.New()
		w := newWriter(t, st, opt)
		var err error
		for i := range 9 {
			s := writer.Sample{Key: fmt.Sprint("k", i), Fields: []writer.Field{{Name: "ids.npy", Data: array(i)}}}
			if i == 4 {
				s = bad
			}
			if err = w.Write(t.Context(), s); err != nil {
				break
			}
		}
		if err == nil {
			_, err = w.Close(t.Context())
		}
		if !skip {
			var se *writer.SampleError
			if !errors.As(err, &se) || !errors.Is(err, writer.ErrLength) || se.Key != "bad" || !strings.Contains(err.Error(), reason) ||
				!strings.Contains(err.Error(), `for attribute "tokens" from field "ids.npy"`) {
				t.Errorf("%v, want the reason %q", err, reason)
			}
			continue
		}
		if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0], reason) {
			t.Fatalf("%v, skipped %q, want the reason %q", err, skipped, reason)
		}
		set := mustLoad(t, st)
		if len(set.Samples) != 8 || set.ByKey()["bad"] != nil {
			t.Errorf("%d samples", len(set.Samples))
		}
	}
}

// TestLengthOptions refuses attributes without a name, fields of no arrays, and a kind that the
// generation appended to does not have.
func TestLengthOptions(t *testing.T) {
	st := mem.New()
	mustPack(t, st, resumeSource(), small("d"))
	for want, lengths := range map[string]map[string]string{
		"without a name":                   {"": "a.npy"},
		"does not end in .npy":             {"tokens": "json"},
		"attribute \"label\" is a integer": {"label": "ids.npy"},
		"field":                            {"tokens": "a/b.npy"},
	} {
		opt := small("d")
		opt.Mode, opt.Lengths = writer.ModeAppend, lengths
		if _, err := writer.New(t.Context(), st, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", lengths, err, want)
		}
	}
	opt := small("d")
	opt.Resume, opt.Lengths = true, map[string]string{"tokens": "bin.npy"}
	if _, err := writer.Pack(t.Context(), st, resumeSource(), opt); !errors.Is(err, writer.ErrExists) {
		t.Errorf("a pack with other lengths is not the one to resume: %v", err)
	}
}
