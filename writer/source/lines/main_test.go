package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// given puts files, given as name and content in turn, into a store; those that end in .gz and .zst
// are compressed.
func given(t testing.TB, files ...string) []source.Input {
	t.Helper()
	store := mem.New()
	var out []source.Input
	for i := 0; i < len(files); i += 2 {
		put(t, store, files[i], pack(t, files[i], files[i+1]))
		out = append(out, source.Input{Store: store, Name: files[i]})
	}
	return out
}

func put(t testing.TB, store objstore.Store, name string, content []byte) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), store, name, content, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func pack(t testing.TB, name, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch low := strings.ToLower(name); {
	case strings.HasSuffix(low, ".gz"):
		w = gzip.NewWriter(&b)
	case strings.HasSuffix(low, ".zst"):
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	default:
		return []byte(content)
	}
	_, err := io.WriteString(w, content)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t testing.TB, opt Options, in []source.Input) *lineSource {
	t.Helper()
	s, err := New(t.Context(), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*lineSource)
}

// show is a sample in one line: its key, and fields and attributes with their values.
func show(s writer.Sample) string {
	var b strings.Builder
	b.WriteString(s.Key)
	for _, f := range s.Fields {
		data := string(f.Data)
		if head, rest, ok := strings.Cut(data, "\n"); ok && strings.HasPrefix(head, "\x93NUMPY") {
			head = head[strings.IndexByte(head, '{'):]
			data = fmt.Sprintf("%s %x", strings.TrimRight(head, " "), rest)
		}
		fmt.Fprintf(&b, " | %s=%s", f.Name, data)
	}
	for _, a := range s.Attrs {
		switch a.Kind {
		case format.AttrLabel:
			fmt.Fprintf(&b, " | @%s=%q", a.Name, a.Label)
		case format.AttrInteger:
			fmt.Fprintf(&b, " | @%s=%d", a.Name, a.Integer)
		default:
			fmt.Fprintf(&b, " | @%s=%g.", a.Name, a.Number)
		}
	}
	return b.String()
}

// all reads to the end. Errors of rows are lines that begin with "! ".
func all(t testing.TB, s writer.Source) []string {
	t.Helper()
	out, err := some(t.Context(), s, -1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// some reads n rows, or all for -1.
func some(ctx context.Context, s writer.Source, n int) (out []string, err error) {
	for ; n != 0; n-- {
		sample, err := s.Next(ctx)
		var bad *writer.SampleError
		switch {
		case errors.As(err, &bad):
			out = append(out, "! "+err.Error())
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		default:
			out = append(out, show(sample))
		}
	}
	return out, nil
}

// same compares lines. A wanted one that begins with "! " may be part of the error there is.
func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%d is missing: %s", i, want[i])
		case i >= len(want):
			t.Errorf("%d is too many: %s", i, got[i])
		case strings.HasPrefix(want[i], "! "):
			for part := range strings.SplitSeq(want[i][2:], " … ") {
				if !strings.HasPrefix(got[i], "! ") || !strings.Contains(got[i], part) {
					t.Errorf("%d: %q is not in: %s", i, part, got[i])
				}
			}
		case got[i] != want[i]:
			t.Errorf("%d:\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

// TestLateKinds: a column may be of another kind in the millionth row. As a field it is what it is
// there, and the kind of the field is the wider one; as an attribute, whose kind the first rows
// decide, it is an error of its row.
func TestLateKinds(t *testing.T) {
	t.Parallel()
	const rows = 999_999
	ints := entry("a", intList(1))
	for name, content := range map[string]string{
		"x.jsonl":    strings.Repeat("{\"a\":1,\"b\":[1]}\n", rows) + "{\"a\":1,\"b\":[\"z\"]}\n{\"a\":\"z\",\"b\":[1]}\n{\"a\":2,\"b\":[2]}\n",
		"x.csv":      "a,b\n" + strings.Repeat("1,1\n", rows) + "1,z\nz,1\n2,2\n",
		"x.tfrecord": strings.Repeat(string(framed(msg(1, ints, entry("b", intList(1))))), rows) + string(framed(msg(1, ints, entry("b", byteList("z", "y"))), msg(1, entry("a", byteList("z")), entry("b", intList(1))), msg(1, ints, entry("b", intList(2))))),
	} {
		src := open(t, Options{Columns: []string{"b"}, Attrs: map[string]string{"at": "a"}}, given(t, name, content))
		var last []string
		for n := 1; ; n++ {
			s, err := src.Next(t.Context())
			if err == io.EOF {
				break
			}
			learned := src.learned.kinds
			switch {
			case n < rows:
			case err != nil:
				last = append(last, "! "+err.Error())
			default:
				last = append(last, fmt.Sprintf("%s %s %s%s", s.Key, s.Fields[0].Name, learned["b.txt"], learned["b.json"]))
			}
		}
		want := []string{"x/000999998 b.npy ", "x/000999999 b.json json", "! sample \"x/001000000\" … column a: z is not an integer, as in the first rows", "x/001000001 b.npy json"}
		if name == "x.csv" {
			want[0], want[1], want[3] = "x/000999998 b.txt int", "x/000999999 b.txt txt", "x/001000001 b.txt txt"
		}
		same(t, last, want)
	}
}
