package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardtool/shardtool/ingest"
)

const changedRows, changedCell = 3000, 900

// changedCells are texts that no two seeds have in common.
func changedCells(seed uint64) (out []string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range changedRows {
		cell := make([]byte, changedCell)
		for i := range cell {
			cell[i] = byte('a' + rng.IntN(26))
		}
		out = append(out, string(cell))
	}
	return out
}

func changedTable(cells []string, write func(rec arrow.Record) error) error {
	fields := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil)
	for first := 0; first < len(cells); first += 100 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, fields)
		b.Field(0).(*array.StringBuilder).AppendValues(cells[first:first+100], nil)
		if err := write(b.NewRecord()); err != nil {
			return err
		}
	}
	return nil
}

func changedArrow(cells []string, whole bool) ([]byte, error) {
	var b bytes.Buffer
	fields := ipc.WithSchema(arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil))
	if !whole {
		w := ipc.NewWriter(&b, fields)
		err := errors.Join(changedTable(cells, w.Write), w.Close())
		return b.Bytes(), err
	}
	f, err := os.CreateTemp("", "changed-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	w, err := ipc.NewFileWriter(f, fields)
	if err == nil {
		err = errors.Join(changedTable(cells, w.Write), w.Close(), f.Close())
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(f.Name())
}

func changedParquet(cells []string) ([]byte, error) {
	var b bytes.Buffer
	text := schema.NewByteArrayNode("text", pq.Repetitions.Required, -1)
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{text}, -1)
	if err != nil {
		return nil, err
	}
	w := file.NewParquetWriter(&b, root, file.WithWriterProps(pq.NewWriterProperties(pq.WithDictionaryDefault(false), pq.WithStats(false))))
	for first := 0; first < len(cells); first += 100 {
		var values []pq.ByteArray
		for _, c := range cells[first : first+100] {
			values = append(values, pq.ByteArray(c))
		}
		g := w.AppendRowGroup()
		c, err := g.NextColumn()
		if err == nil {
			_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(values, nil, nil)
		}
		if err == nil {
			err = errors.Join(c.Close(), g.Close())
		}
		if err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

func changedLines(cells []string) (out []byte) {
	for _, c := range cells {
		out = append(out, fmt.Sprintf("{\"text\": %q}\n", c)...)
	}
	return out
}

func changedTar(cells []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, c := range cells {
		if i%300 == 0 { // read in place, by other goroutines
			c = strings.Repeat(c, 400)
		}
		err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%04d.txt", i), Mode: 0o644, Size: int64(len(c)), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = w.Write([]byte(c))
		}
		if err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func changedZip(method uint16, names func(i int) string, cells ...string) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, c := range cells {
		f, err := w.CreateHeader(&zip.FileHeader{Name: names(i), Method: method})
		if err == nil {
			_, err = io.WriteString(f, c)
		}
		if err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func changedGzip(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.NoCompression) // so that the size is the same
	if err == nil {
		_, err = w.Write(b)
	}
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func changedNpy(descr, shape, data string) string {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	head += strings.Repeat(" ", 127-10-len(head)) + "\n"
	return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(head)))) + head + data
}

func changedRecords(cells []string) (out []byte) {
	masked := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	message := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	for _, c := range cells {
		list := message(1, message(1, []byte(c)))
		r := message(1, message(1, append(message(1, []byte("text")), message(2, list)...)))
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(r)))
		out = append(out, binary.LittleEndian.AppendUint32(head, masked(head))...)
		out = binary.LittleEndian.AppendUint32(append(out, r...), masked(r))
	}
	return out
}

func changedMDS(cells []string) (shard, index []byte, err error) {
	columns := map[string]any{"column_names": []string{"text"}, "column_encodings": []string{"str"}, "column_sizes": []*int{nil}}
	config, err := json.Marshal(columns)
	if err != nil {
		return nil, nil, err
	}
	shard = binary.LittleEndian.AppendUint32(nil, uint32(len(cells)))
	at := 4 + 4*(len(cells)+1) + len(config)
	shard = binary.LittleEndian.AppendUint32(shard, uint32(at))
	for _, c := range cells {
		at += 4 + len(c)
		shard = binary.LittleEndian.AppendUint32(shard, uint32(at))
	}
	shard = append(shard, config...)
	for _, c := range cells {
		shard = append(binary.LittleEndian.AppendUint32(shard, uint32(len(c))), c...)
	}
	entry := map[string]any{"format": "mds", "version": 2, "compression": nil, "hashes": []string{}, "samples": len(cells), "size_limit": nil, "zip_data": nil,
		"raw_data": map[string]any{"basename": "s.mds", "bytes": len(shard), "hashes": map[string]string{}}}
	for k, v := range columns {
		entry[k] = v
	}
	index, err = json.Marshal(map[string]any{"version": 2, "shards": []any{entry}})
	return shard, index, err
}

// changedKinds make the files of a source, of which the first changes.
var changedKinds = map[string]func(cells []string) (map[string][]byte, error){
	"s.parquet": func(cells []string) (map[string][]byte, error) {
		b, err := changedParquet(cells)
		return map[string][]byte{"s.parquet": b}, err
	},
	"s.arrow": func(cells []string) (map[string][]byte, error) {
		b, err := changedArrow(cells, true)
		return map[string][]byte{"s.arrow": b}, err
	},
	"s.arrows": func(cells []string) (map[string][]byte, error) {
		b, err := changedArrow(cells, false)
		return map[string][]byte{"s.arrows": b}, err
	},
	"s.jsonl": func(cells []string) (map[string][]byte, error) {
		return map[string][]byte{"s.jsonl": changedLines(cells)}, nil
	},
	"s.jsonl.gz": func(cells []string) (map[string][]byte, error) {
		b, err := changedGzip(changedLines(cells))
		return map[string][]byte{"s.jsonl.gz": b}, err
	},
	"s.json": func(cells []string) (map[string][]byte, error) {
		b, err := json.Marshal(func() (out []map[string]string) {
			for _, c := range cells {
				out = append(out, map[string]string{"text": c})
			}
			return out
		}())
		return map[string][]byte{"s.json": b}, err
	},
	"s.csv": func(cells []string) (map[string][]byte, error) {
		return map[string][]byte{"s.csv": []byte("text,n\n" + strings.Join(cells, ",1\n") + ",1\n")}, nil
	},
	"s.tfrecord": func(cells []string) (map[string][]byte, error) {
		return map[string][]byte{"s.tfrecord": changedRecords(cells)}, nil
	},
	"s.mds": func(cells []string) (map[string][]byte, error) {
		shard, index, err := changedMDS(cells)
		return map[string][]byte{"s.mds": shard, "index.json": index}, err
	},
	"s.tar": func(cells []string) (map[string][]byte, error) {
		b, err := changedTar(cells)
		return map[string][]byte{"s.tar": b}, err
	},
	"s.tar.gz": func(cells []string) (map[string][]byte, error) {
		b, err := changedTar(cells)
		if err == nil {
			b, err = changedGzip(b)
		}
		return map[string][]byte{"s.tar.gz": b}, err
	},
	"s.npy": func(cells []string) (map[string][]byte, error) {
		return map[string][]byte{"s.npy": []byte(changedNpy("<u2", fmt.Sprintf("(%d, %d)", changedRows, changedCell/2), strings.Join(cells, "")))}, nil
	},
	"s.npz": func(cells []string) (map[string][]byte, error) {
		b, err := changedZip(zip.Store, func(int) string { return "x.npy" }, changedNpy("<u2", fmt.Sprintf("(%d, %d)", changedRows, changedCell/2), strings.Join(cells, "")))
		return map[string][]byte{"s.npz": b}, err
	},
	"s.idx": func(cells []string) (map[string][]byte, error) {
		idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8) // version 1, uint16
		idx = binary.LittleEndian.AppendUint64(idx, changedRows)
		idx = binary.LittleEndian.AppendUint64(idx, changedRows+1)
		for range cells {
			idx = binary.LittleEndian.AppendUint32(idx, changedCell/2)
		}
		for i := range cells {
			idx = binary.LittleEndian.AppendUint64(idx, uint64(i*changedCell))
		}
		for i := range changedRows + 1 {
			idx = binary.LittleEndian.AppendUint64(idx, uint64(i))
		}
		return map[string][]byte{"s.bin": []byte(strings.Join(cells, "")), "s.idx": idx}, nil
	},
	"s.zip": func(cells []string) (map[string][]byte, error) {
		b, err := changedZip(zip.Store, func(i int) string { return fmt.Sprintf("%04d.txt", i) }, cells...)
		return map[string][]byte{"s.zip": b}, err
	},
	"": func(cells []string) (map[string][]byte, error) { // a folder of files
		out := map[string][]byte{"s.txt": []byte(strings.Join(cells, ""))}
		for i, c := range cells[:100] {
			out[fmt.Sprintf("r%04d.txt", i)] = []byte(c)
		}
		return out, nil
	},
}

// readChanged reads a source, calls change before sample number at, and returns the samples and how
// reading ended.
func readChanged(t *testing.T, path string, at int, change func()) (samples []string, err error) {
	t.Helper()
	in, err := ingest.Open(t.Context(), []string{path}, ingest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	src := in.Source
	for {
		if len(samples) == at {
			change()
		}
		s, err := src.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		text := s.Key
		for _, field := range s.Fields {
			data := field.Data
			if field.Payload != nil && err == nil {
				data = make([]byte, field.Size)
				if err = field.Payload.ReadInto(t.Context(), data); err != nil {
					err = fmt.Errorf("%s: %w", s.Origin, err) // as the writer does
				}
			}
			text += fmt.Sprintf(" %s %08x", field.Name, crc32.ChecksumIEEE(data))
		}
		if err != nil {
			return samples, err
		}
		samples = append(samples, text)
	}
}

// TestSourceChanges overwrites, cuts, replaces and deletes a source of every kind at each tenth of
// its samples: what is read is what was there at first, or an error, never another content.
func TestSourceChanges(t *testing.T) {
	t.Parallel()
	old, other := changedCells(1), changedCells(2)
	for name, files := range changedKinds {
		t.Run(cmp.Or(name, "files"), func(t *testing.T) {
			t.Parallel()
			before, err := files(old)
			after, err2 := files(other)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			first := filepath.Join(dir, cmp.Or(strings.Replace(name, ".idx", ".bin", 1), "s.txt"))
			content, changed := before[filepath.Base(first)], after[filepath.Base(first)]
			if len(content) != len(changed) {
				t.Fatalf("%d and %d bytes", len(content), len(changed))
			}
			put := func(path string, b []byte) {
				err := os.WriteFile(path, b, 0o644)
				if err == nil {
					past := time.Now().Add(-time.Hour)
					err = os.Chtimes(path, past, past)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for file, b := range before {
				put(filepath.Join(dir, file), b)
			}
			source := filepath.Join(dir, name)
			want, err := readChanged(t, source, -1, nil)
			if err != nil {
				t.Fatal(err)
			}
			noticed := map[string]int{}
			for tenth := range 10 {
				for what, do := range map[string]func() error{
					"overwritten": func() error {
						f, err := os.OpenFile(first, os.O_WRONLY, 0)
						if err == nil {
							_, err = f.Write(changed)
							err = errors.Join(err, f.Close())
						}
						return err
					},
					"cut": func() error { return os.Truncate(first, int64(len(content)/2)) },
					"replaced": func() error {
						next := filepath.Join(t.TempDir(), "next")
						return errors.Join(os.WriteFile(next, changed, 0o644), os.Rename(next, first))
					},
					"deleted": func() error { return os.Remove(first) },
				} {
					if err := os.Remove(first); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
					put(first, content)
					got, err := readChanged(t, source, len(want)*tenth/10, func() {
						if err := do(); err != nil {
							t.Fatal(err)
						}
					})
					for i := range got {
						if got[i] != want[i] {
							t.Fatalf("%s at %d tenths: sample %d of %d is another one (%v)", what, tenth, i, len(want), err)
						}
					}
					if err == nil && len(got) != len(want) {
						t.Errorf("%s at %d tenths: %d samples of %d without an error", what, tenth, len(got), len(want))
					}
					if err != nil && !strings.Contains(err.Error(), filepath.Base(first)) {
						t.Errorf("%s at %d tenths: the error names no file: %v", what, tenth, err)
					}
					if err != nil {
						noticed[what]++
					}
				}
			}
			if noticed["overwritten"] == 0 || noticed["cut"] == 0 {
				t.Errorf("noticed: %v", noticed)
			}
		})
	}
}
