package ingest_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// oddNames are names that other programs give, or that an attacker does.
var oddNames = []string{
	"a//b", `a\b`, "./a", "a/./b", "../a", "a/../b", "a\x00b", "a\nb", strings.Repeat("n", 1000), "\xffz", "/abs", "..", ".",
	"a/..", " ", `C:\x`, strings.Repeat("k", 5000), strings.Repeat("d/", 600) + "e", "\u202egpj", "e\u0301", "a/", "",
}

// ofName makes a source of two samples, one of which has the name and the content "odd"; ok is false if
// no such source can be made.
var ofName = map[string]func(t *testing.T, dir, name string) (src string, ok bool){
	"folder": func(t *testing.T, dir, name string) (string, bool) {
		path := filepath.Join(dir, "x") + "/" + name + ".txt"
		if filepath.Clean(path) != path || os.MkdirAll(filepath.Dir(path), 0o777) != nil {
			return "", false
		}
		write(t, filepath.Join(dir, "x", "ok.txt"), []byte("ok"))
		return filepath.Join(dir, "x"), os.WriteFile(path, []byte("odd"), 0o666) == nil
	},
	"tar": func(t *testing.T, dir, name string) (string, bool) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, f := range [][2]string{{name + ".txt", "odd"}, {"ok.txt", "ok"}} {
			if w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o644}) != nil {
				return "", false
			}
			_, _ = w.Write([]byte(f[1]))
		}
		_ = w.Close()
		return write(t, filepath.Join(dir, "x.tar"), out.Bytes()), true
	},
	"zip": func(t *testing.T, dir, name string) (string, bool) {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		for _, f := range [][2]string{{name + ".txt", "odd"}, {"ok.txt", "ok"}} {
			m, err := w.Create(f[0])
			if err != nil {
				t.Fatal(err)
			}
			_, _ = m.Write([]byte(f[1]))
		}
		_ = w.Close()
		return write(t, filepath.Join(dir, "x.zip"), out.Bytes()), true
	},
	"csv": func(t *testing.T, dir, name string) (string, bool) {
		return write(t, filepath.Join(dir, "x.csv"), []byte("key,txt\n\""+name+"\",odd\nok,ok\n")), true
	},
	"jsonl": func(t *testing.T, dir, name string) (string, bool) {
		text, _ := json.Marshal(strings.ReplaceAll(name, "\xff", "QQ"))
		text = bytes.ReplaceAll(text, []byte("QQ"), []byte("\xff"))
		return write(t, filepath.Join(dir, "x.jsonl"), fmt.Appendf(nil, `{"key":%s,"txt":"odd"}`+"\n"+`{"key":"ok","txt":"ok"}`, text)), true
	},
	"parquet": func(t *testing.T, dir, name string) (string, bool) {
		odd, ok := "odd", "ok"
		return write(t, filepath.Join(dir, "x.parquet"), encode("parquet", []row{{key: &name, text: &odd}, {key: &ok, text: &ok}}, 2)), true
	},
	"arrow": func(t *testing.T, dir, name string) (string, bool) {
		of := arrow.NewSchema([]arrow.Field{{Name: "key", Type: arrow.BinaryTypes.String}, {Name: "txt", Type: arrow.BinaryTypes.String}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, of)
		b.Field(0).(*array.StringBuilder).AppendValues([]string{name, "ok"}, nil)
		b.Field(1).(*array.StringBuilder).AppendValues([]string{"odd", "ok"}, nil)
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(of))
		if err := errors.Join(w.Write(b.NewRecord()), w.Close()); err != nil {
			t.Fatal(err)
		}
		return write(t, filepath.Join(dir, "x.arrow"), out.Bytes()), true
	},
	"tfrecord": func(t *testing.T, dir, name string) (string, bool) {
		msg := func(num protowire.Number, b ...[]byte) []byte {
			return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(b...))
		}
		entry := func(name, value string) []byte {
			return msg(1, msg(1, []byte(name)), msg(2, msg(1, msg(1, []byte(value)))))
		}
		sum := func(b []byte) uint32 {
			c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
			return (c>>15 | c<<17) + 0xa282ead8
		}
		var out []byte
		for _, r := range [][]byte{msg(1, entry("key", name), entry("txt", "odd")), msg(1, entry("key", "ok"), entry("txt", "ok"))} {
			head := binary.LittleEndian.AppendUint64(nil, uint64(len(r)))
			out = binary.LittleEndian.AppendUint32(append(out, head...), sum(head))
			out = binary.LittleEndian.AppendUint32(append(out, r...), sum(r))
		}
		return write(t, filepath.Join(dir, "x.tfrecord"), out), true
	},
	"mds": func(t *testing.T, dir, name string) (string, bool) {
		u32 := binary.LittleEndian.AppendUint32
		config := `{"column_names":["key","txt"],"column_encodings":["str","str"],"column_sizes":[null,null]}`
		first := append(u32(u32(nil, uint32(len(name))), 3), name+"odd"...)
		second := append(u32(u32(nil, 2), 2), "okok"...)
		at := uint32(4 + 3*4 + len(config))
		out := u32(u32(u32(u32(nil, 2), at), at+uint32(len(first))), at+uint32(len(first)+len(second)))
		return write(t, filepath.Join(dir, "x.mds"), slices.Concat(out, []byte(config), first, second)), true
	},
	"data set": func(t *testing.T, dir, name string) (string, bool) {
		store, err := local.New(filepath.Join(dir, "x"), local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := writer.New(t.Context(), store, writer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		for _, s := range [][2]string{{name, "odd"}, {"ok", "ok"}} {
			if w.Write(t.Context(), writer.Sample{Key: s[0], Fields: []writer.Field{{Name: "txt", Data: []byte(s[1])}}}) != nil {
				return "", false
			}
		}
		_, err = w.Close(t.Context())
		return filepath.Join(dir, "x"), err == nil
	},
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOddNames: in each kind of source a sample with an odd name is packed under that name, or
// refused by an error that shows it, or left out and counted where errors skip samples; the other
// sample is packed.
func TestOddNames(t *testing.T) {
	t.Parallel()
	for kind, make := range ofName {
		packed := 0
		for _, name := range oddNames {
			what := fmt.Sprintf("%s %.20q", kind, name)
			src, ok := make(t, t.TempDir(), name)
			if !ok {
				continue
			}
			rows := !slices.Contains([]string{"folder", "tar", "zip", "data set"}, kind)
			pack := func(skip bool) (map[string]string, *ingest.Input, *writer.Result, error) {
				o := ingest.Options{LeaveUnsafe: skip}
				if rows {
					o.Rows.Key = "key"
				}
				in, err := ingest.Open(t.Context(), []string{src}, o)
				if err != nil {
					return nil, nil, nil, err
				}
				t.Cleanup(func() { in.Close() })
				store, opt := mem.New(), writer.Options{}
				opt.Faults.Skip = skip
				res, err := writer.Pack(t.Context(), store, in.Source, opt)
				if err != nil {
					return nil, nil, nil, err
				}
				return contents(t, store), in, res, nil
			}
			got, in, res, err := pack(false)
			if err != nil {
				shown := strings.Trim(fmt.Sprintf("%.30q", name), `"`)
				if text := err.Error(); !strings.Contains(text, shown) && !strings.Contains(text, "not UTF-8") {
					t.Errorf("%s: %v", what, err)
				}
				if got, in, res, err = pack(true); err != nil {
					t.Errorf("%s: with errors skipped: %v", what, err)
					continue
				}
				if len(got) != 1 || got["ok"] != "ok" {
					t.Errorf("%s: with errors skipped: %q", what, got)
				}
			} else if key := strings.TrimPrefix(name, "./"); len(got) == 2 && got["ok"] == "ok" && got[key] == "odd" {
				packed++
			} else if in.Names().Left(tally.Hidden) != 1 || path.Base(name + ".txt")[0] != '.' {
				t.Errorf("%s: %q", what, got)
			}
			listed, rules := all(in, 0, res.Written, res.Skipped, res.LeftOut)
			for _, n := range rules {
				listed -= n
			}
			if files := int64(1); listed != 0 && listed != files {
				t.Errorf("%s: %d names or rows are lost: %v", what, listed, rules)
			}
		}
		if packed < 4 {
			t.Errorf("%s: only %d odd names are packed", kind, packed)
		}
	}
}

// TestKeyPrefixMeets: where the name of an archive and a key make the key that another has, the pack
// is refused, and says so.
func TestKeyPrefixMeets(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, f := range [][2]string{{"a", "b/x"}, {"a/b", "x"}, {"c/b", "x"}} {
		if err := os.MkdirAll(path.Dir(f[0]), 0o777); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: f[1] + ".txt", Mode: 0o644}), w.Close()); err != nil {
			t.Fatal(err)
		}
		write(t, f[0]+".tar", out.Bytes())
	}
	for all, want := range map[string]string{"a.tar a/b.tar": "a/b/x b/x", "a/b.tar c/b.tar": "a/b/x c/b/x", "a.tar a/b.tar c/b.tar": ""} {
		in, err := ingest.Open(t.Context(), strings.Fields(all), ingest.Options{KeyPrefix: true})
		if err != nil {
			t.Fatal(err)
		}
		store := mem.New()
		_, err = writer.Pack(t.Context(), store, in.Source, writer.Options{})
		in.Close()
		if want == "" {
			if !errors.Is(err, format.ErrDuplicate) || !strings.Contains(err.Error(), `"a/b/x"`) {
				t.Errorf("%s: %v", all, err)
			}
		} else if got := slices.Sorted(maps.Keys(contents(t, store))); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", all, got, err)
		}
	}
}

// contents are the texts of samples by their keys.
func contents(t *testing.T, store objstore.Store) map[string]string {
	t.Helper()
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := map[string]string{}
	for s, err := range d.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range s.Fields {
			all = append(all, string(f.Data))
		}
		out[string(s.Key)] = strings.Join(all, " ")
	}
	return out
}
