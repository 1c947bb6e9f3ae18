package doctor

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list is a source of samples and errors.
type list []any

func (l *list) Next(context.Context) (writer.Sample, error) {
	if len(*l) == 0 {
		return writer.Sample{}, io.EOF
	}
	next := (*l)[0]
	*l = (*l)[1:]
	if err, ok := next.(error); ok {
		return writer.Sample{}, err
	}
	return next.(writer.Sample), nil
}

func (l *list) Cursor() string                     { return "" }
func (l *list) Seek(context.Context, string) error { return nil }
func (l *list) Fingerprint() string                { return "list" }
func (l *list) Meta() format.Metadata              { return nil }
func (l *list) Total() (samples, bytes int64)      { return int64(len(*l)), 0 }
func (l *list) Close() error                       { return nil }

func sample(key string, fields ...string) writer.Sample {
	s := writer.Sample{Key: key, Origin: "src/" + key}
	for i := 0; i < len(fields); i += 2 {
		s.Fields = append(s.Fields, writer.Field{Name: fields[i], Data: []byte(fields[i+1])})
	}
	return s
}

// kinds are the kinds of a report's findings with their counts.
func kinds(r *Report) map[Kind]int {
	out := map[Kind]int{}
	for _, f := range r.Findings {
		out[f.Kind] = f.Count
	}
	return out
}

// TestSource has each kind of problem that samples can have, and none where there is none.
func TestSource(t *testing.T) {
	good := func() []any { return []any{sample("a", "txt", "x"), sample("b", "txt", "y")} }
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		more    []any
		o       Options
		want    map[Kind]int
		samples int64
	}{
		{"nothing", nil, Options{}, map[Kind]int{}, 2},
		{"duplicate", []any{sample("a", "txt", "z")}, Options{}, map[Kind]int{DuplicateKey: 1}, 3},
		{"empty", []any{sample("c", "txt", "")}, Options{}, map[Kind]int{Empty: 1}, 3},
		{"fields", []any{sample("c", "txt", "x", "cls", "1")}, Options{}, map[Kind]int{FieldsDiffer: 1}, 3},
		{"case", []any{sample("c", "TXT", "x"), sample("d", "TXT", "x"), sample("e", "TXT", "x")}, Options{}, map[Kind]int{UpperCase: 3, FieldsDiffer: 1}, 5},
		{"columns with dots", []any{sample("c", "a.txt", "x")}, Options{}, map[Kind]int{FieldsDiffer: 1}, 3},
		{"files with dots", []any{sample("c", "a.txt", "x")}, Options{FileNames: true}, map[Kind]int{DottedName: 1, FieldsDiffer: 1}, 3},
		{"JSON", []any{sample("c", "json", "{")}, Options{}, map[Kind]int{Undecodable: 1, FieldsDiffer: 1}, 3},
		{"JPEG", []any{sample("c", "jpg", "\xff\xd8\xff\xe0")}, Options{}, map[Kind]int{Undecodable: 1, FieldsDiffer: 1}, 3},
		{"a PNG called JPEG", []any{sample("c", "jpeg", pngOf(t))}, Options{}, map[Kind]int{FieldsDiffer: 1}, 3},
		{"a cut PNG called JPEG", []any{sample("c", "jpeg", pngOf(t)[:40])}, Options{}, map[Kind]int{Undecodable: 1, FieldsDiffer: 1}, 3},
		{"PNG", []any{sample("c", "png", "no image")}, Options{}, map[Kind]int{Undecodable: 1, FieldsDiffer: 1}, 3},
		{"name", []any{sample("../c", "txt", "x")}, Options{}, map[Kind]int{Name: 1}, 3},
		{"unreadable", []any{&writer.SampleError{Origin: "src/c", Err: broken}}, Options{}, map[Kind]int{Unreadable: 1}, 3},
		{"null", []any{&writer.SampleError{Origin: "src/c", Err: source.ErrNulls}}, Options{}, map[Kind]int{Null: 1}, 3},
		{"left out", []any{&writer.SampleError{Origin: "src/c", Err: source.ErrNulls, LeaveOut: true}}, Options{}, map[Kind]int{Null: 1}, 2},
		{"corrupt", []any{fmt.Errorf("c: %w", format.ErrCorrupt), sample("a", "txt", "")}, Options{}, map[Kind]int{Corrupt: 1}, 2},
		{"limit", []any{sample("a", "txt", "")}, Options{Limit: 2}, map[Kind]int{}, 2},
	} {
		src := list(append(good(), c.more...))
		r, err := Source(t.Context(), &src, c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := kinds(r); !reflect.DeepEqual(got, c.want) || r.Samples != c.samples || r.Mixing != nil {
			t.Errorf("%s: %v of %d samples, want %v of %d", c.name, got, r.Samples, c.want, c.samples)
		}
	}
	src := list{broken}
	if _, err := Source(t.Context(), &src, Options{}); !errors.Is(err, broken) {
		t.Errorf("another error: %v", err)
	}
}

func pngOf(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 4, 4))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// lists is a source that states that pictures is a list of files.
type lists struct{ list }

func (lists) Meta() format.Metadata {
	return format.Metadata{"features": `{"pictures":{"_type":"List","feature":{"_type":"Image"}}}`}
}

// TestLists: samples may have any number of elements of a list of files.
func TestLists(t *testing.T) {
	src := func() *lists {
		return &lists{list{sample("a", "txt", "x"), sample("b", "txt", "y", "pictures.0.bin", "0", "pictures.1.bin", "1")}}
	}
	r, err := Source(t.Context(), src(), Options{})
	if err != nil || len(r.Findings) != 0 {
		t.Errorf("the source: %v, %v", r, err)
	}
	store := mem.New()
	if _, err := writer.Pack(t.Context(), store, src(), writer.Options{}); err != nil {
		t.Fatal(err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if found := Stored(d, false); len(found) != 0 {
		t.Errorf("the totals: %v", found)
	}
	r, err = Dataset(t.Context(), d, Options{})
	if err != nil || kinds(r)[FieldsDiffer] != 0 {
		t.Errorf("the data set: %v, %v", r, err)
	}
}

// TestExamples keeps the first five places, and counts all.
func TestExamples(t *testing.T) {
	var src list
	for i := range 9 {
		src = append(src, sample(fmt.Sprint(i), "txt", ""))
	}
	r, err := Source(t.Context(), &src, Options{})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Count != 9 || len(r.Findings[0].Examples) != 5 || r.Findings[0].Examples[0] != "src/0.txt" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDataset finds the problems of samples in a data set too, and measures how it is mixed.
func TestDataset(t *testing.T) {
	store := mem.New()
	var src list
	for i := range 600 {
		src = append(src, sample(fmt.Sprintf("%03d", i), "txt", fmt.Sprint(i)))
	}
	src[7] = sample("007", "txt", "")
	if _, err := writer.Pack(t.Context(), store, &src, writer.Options{ShardSize: 64 << 10, BlockSize: 4 << 10}); err != nil {
		t.Fatal(err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := Dataset(t.Context(), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[Kind]int{Empty: 1, TinyShards: 1}); !reflect.DeepEqual(kinds(r), want) || r.Samples != 600 {
		t.Errorf("%v of %d samples, want %v", kinds(r), r.Samples, want)
	}
	if m := r.Mixing; m == nil || m.Samples != 600 || len(m.Worlds) != 1 || m.Worlds[0].Size != 8 || !m.Params.Shuffle || m.Labels != 100 {
		t.Errorf("%+v", r.Mixing)
	}
}
