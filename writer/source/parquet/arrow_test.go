package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// arrowFile is a file that pyarrow wrote; testdata/arrow/make.py says how.
func arrowFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../testdata/arrow", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// arrowSource is a source of one Arrow file, on a local or a remote store.
func arrowSource(t testing.TB, content []byte, remote bool, opt parquet.Options) (*parquet.Rows, error) {
	t.Helper()
	st := store(t, map[string][]byte{"x.arrow": content})
	if remote {
		st = far{st}
	}
	src, err := parquet.New(t.Context(), inputs(t, st), opt)
	if err == nil {
		t.Cleanup(func() { src.Close() })
	}
	return src, err
}

// far is a store whose requests take long, as far as sources know.
type far struct{ objstore.Store }

func (far) Traits() objstore.Traits { return objstore.Traits{Requests: 4} }

// TestArrowValues: every type in files and streams, plain and compressed, gives the fields that the
// same table in Parquet gives, from any row on, in any parts.
func TestArrowValues(t *testing.T) {
	t.Parallel()
	opt := parquet.Options{Key: "id", Attrs: map[string]string{"n": "i8", "word": "dict"}, Where: []string{"f16 >= 0.1 or text is null"}}
	want := read(t, arrowFile(t, "values.parquet"), opt)
	if len(want) < 20 {
		t.Fatalf("%d rows", len(want))
	}
	for _, name := range []string{"file.arrow", "plain.arrow", "stream.arrows", "lz4.arrow", "zstd.arrows"} {
		for _, remote := range []bool{false, true} {
			src, err := arrowSource(t, arrowFile(t, name), remote, opt)
			if err != nil {
				t.Fatal(name, err)
			}
			var cursors []string
			for i := 0; ; i++ {
				cursors = append(cursors, src.Cursor())
				s, err := src.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(name, err)
				}
				got := copyOf(s)
				sameFields(t, name+" "+got.key, got.fields, want[i].fields)
				if fmt.Sprint(got.attrs) != fmt.Sprint(want[i].attrs) {
					t.Errorf("%s %s: %v, want %v", name, got.key, got.attrs, want[i].attrs)
				}
			}
			for i := range cursors {
				i = (i * 7) % len(cursors)
				if err := src.Seek(t.Context(), cursors[i]); err != nil {
					t.Fatal(err)
				}
				if got, bad, err := rows(src); err != nil || len(bad) > 0 || !slices.EqualFunc(got, want[i:], same) {
					t.Fatalf("%s from %s: %d rows, want %d; %v, %v", name, cursors[i], len(got), len(want)-i, err, bad)
				}
			}
			var got []row
			for part := range 3 {
				if err := src.Split(part, 3); err != nil {
					t.Fatal(err)
				}
				some, _, err := rows(src)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, some...)
			}
			if !slices.EqualFunc(got, want, same) {
				t.Errorf("%s in parts: %d rows, want %d", name, len(got), len(want))
			}
		}
	}
}

// TestArrowDictionaries: a dictionary that grows in the stream is complete from any row on.
func TestArrowDictionaries(t *testing.T) {
	t.Parallel()
	src, err := arrowSource(t, arrowFile(t, "small.arrows"), false, parquet.Options{Key: "id", Columns: []string{"word"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, cursor := range []string{"0/0/0", "0/1/0", "0/0/2"} {
		if err := src.Seek(t.Context(), cursor); err != nil {
			t.Fatal(err)
		}
		got, bad, err := rows(src)
		if err != nil || len(bad) > 0 || got[len(got)-2].fields["word.txt"] != "z" || got[len(got)-1].fields["word.txt"] != "x" {
			t.Errorf("from %s: %v, %v, %v", cursor, got, bad, err)
		}
	}
}

// attemptArrow reads a damaged file. It must end, without a panic or a large allocation, and an
// error names the file.
func attemptArrow(t *testing.T, what string, content []byte) (failed bool) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	src, err := arrowSource(t, content, false, parquet.Options{})
	if err == nil {
		n := 0
		for n < 100_000 {
			_, err = src.Next(t.Context())
			var bad *writer.SampleError
			if errors.As(err, &bad) {
				failed = true
			} else if err != nil {
				break
			}
			n++
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > mostAllocated/4 {
		t.Errorf("%s: %d MiB were allocated", what, n>>20)
	}
	if err != nil && (!strings.Contains(err.Error(), "x.arrow") && !errors.Is(err, writer.ErrOptions) || strings.Contains(err.Error(), "runtime error")) {
		t.Errorf("%s: %v", what, err)
	}
	return failed || err != nil
}

// TestArrowDamaged cuts files anywhere, which is always found, and flips bytes.
func TestArrowDamaged(t *testing.T) {
	for _, name := range []string{"small.arrows", "plain.arrow", "union.arrow", "lz4.arrow", "zstd.arrows"} {
		content := arrowFile(t, name)
		if attemptArrow(t, name, content) && name != "union.arrow" {
			t.Fatalf("%s is not whole", name)
		}
		for n := 0; n < len(content); n += max(1, len(content)/150) {
			if !attemptArrow(t, name, content[:n]) {
				t.Errorf("%s: its first %d bytes of %d are read", name, n, len(content))
			}
		}
		found := 0
		for at := 0; at < len(content); at += max(1, len(content)/300) {
			bad := bytes.Clone(content)
			bad[at] ^= byte(1 + at%255)
			if attemptArrow(t, fmt.Sprintf("%s, byte %d", name, at), bad) {
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s: no damage was found", name)
		}
	}
}

// TestArrowRefused: what is not one table, or lies about its sizes, is refused for what it is.
func TestArrowRefused(t *testing.T) {
	t.Parallel()
	small, zstd := arrowFile(t, "small.arrows"), arrowFile(t, "zstd.arrows")
	body := bytes.Clone(zstd)
	frame := bytes.Index(body, []byte("\x28\xb5\x2f\xfd")) // a frame follows its decoded size
	binary.LittleEndian.PutUint64(body[frame-8:], 1<<40)
	views := arrowFile(t, "views.arrows")
	count := bytes.Index(views, []byte("\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00")) + 4 // a list of one number, of buffers
	binary.LittleEndian.PutUint64(views[count:], 1<<33)
	end := len(small) - 8
	for want, content := range map[string][]byte{
		"another schema begins":           append(bytes.Clone(small[:end]), small...),
		"follow the end of the stream":    append(bytes.Clone(small), 0),
		"lacks the mark of its end":       small[:end],
		"the first format of Feather":     []byte("FEA1 and more than that"),
		"metadata of 1073741824 bytes":    append([]byte("\xff\xff\xff\xff\x00\x00\x00\x40"), small...),
		"does not begin with a schema":    {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"it ends with":                    []byte("ARROW1\x00\x00 and no footer"),
		"which is not read":               arrowFile(t, "union.arrow"),
		"state that they decode to 10995": body,
		"it is cut off":                   {},
		"state 8589934592 buffers":        views,
	} {
		src, err := arrowSource(t, content, false, parquet.Options{PageMemory: 8 << 20})
		if err == nil {
			_, err = src.Next(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.arrow") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	src, err := arrowSource(t, arrowFile(t, "union.arrow"), false, parquet.Options{Columns: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, bad, err := rows(src); len(got) != 2 || len(bad) > 0 || err != nil {
		t.Error("without the union:", got, bad, err)
	}
}

// TestArrowUnread: a type that the library does not know is named. The file is not damaged.
func TestArrowUnread(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"decimal32.arrow": "decimals of 32 bits", "int128.arrow": "integers of 128 bits", "nothing.arrow": "lists of no elements"} {
		_, err := arrowSource(t, arrowFile(t, name), false, parquet.Options{})
		if err == nil || errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), `column "x" is of `+want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPolars: files of polars have no length before their first schema. The footer has it, too.
func TestPolars(t *testing.T) {
	t.Parallel()
	src, err := arrowSource(t, arrowFile(t, "polars.arrow"), true, parquet.Options{Key: "id"})
	if err != nil {
		t.Fatal(err)
	}
	got, bad, err := rows(src)
	if err != nil || len(bad) > 0 || len(got) != 3 {
		t.Fatal(got, bad, err)
	}
	sameFields(t, got[1].key, got[1].fields, map[string]string{"n.txt": "2", "l.npy": numpy("<i8", "(1,)", int64(3))})
	sameFields(t, got[2].key, got[2].fields, map[string]string{"n.txt": "3", "x.txt": "2", "l.npy": numpy("<i8", "(0,)")})
}

// TestArrowLabels: class names come from the description beside the files.
func TestArrowLabels(t *testing.T) {
	t.Parallel()
	st := store(t, map[string][]byte{"d/x.arrow": arrowFile(t, "stream.arrows"),
		"d/dataset_info.json": []byte(`{"features":{"i8":{"_type":"ClassLabel","names":["a","b"]}}}`)})
	src := open(t, inputs(t, st, "d/x.arrow"), parquet.Options{Key: "id"})
	if got := src.Meta(); got["classes"] != `["a","b"]` {
		t.Errorf("%v", got)
	}
}

// FuzzArrow: no file causes a panic, a hang or a large allocation.
func FuzzArrow(f *testing.F) {
	for _, name := range []string{"small.arrows", "plain.arrow", "union.arrow"} {
		f.Add(arrowFile(f, name))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<20 {
			return
		}
		st := store(t, map[string][]byte{"x.arrow": content})
		src, err := parquet.New(t.Context(), []source.Input{{Store: st, Name: "x.arrow"}}, parquet.Options{PageMemory: 16 << 20})
		if err != nil {
			return
		}
		defer src.Close()
		for range 10_000 {
			if _, err := src.Next(t.Context()); err != nil && !errors.Is(err, format.ErrCorrupt) {
				return
			}
		}
	})
}
