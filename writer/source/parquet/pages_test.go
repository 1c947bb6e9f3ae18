package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// first reads the first row of a file.
func first(t testing.TB, content []byte, opt parquet.Options) (row, error) {
	t.Helper()
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	s, err := src.Next(t.Context())
	return copyOf(s), err
}

// TestLargePages: a page that decodes to more than 64 MiB from little is read where memory allows,
// and is too large, not corrupt, where it does not.
func TestLargePages(t *testing.T) {
	const values, each = 66, 1 << 20
	text := strings.Repeat("0123456789abcdef", each/16)
	many := make([]string, values)
	for i := range many {
		many[i] = text
	}
	for _, codec := range []compress.Compression{compress.Codecs.Zstd, compress.Codecs.Gzip} {
		t.Run(fmt.Sprint(codec), func(t *testing.T) {
			content := write(t, table{
				fields: schema.FieldList{leafNode("text", pq.Repetitions.Required, schema.StringLogicalType{}, pq.Types.ByteArray, 0)},
				groups: [][]data{{{values: many}}},
				props:  []pq.WriterProperty{pq.WithCompression(codec), pq.WithDictionaryDefault(false), pq.WithDataPageSize(1 << 30), pq.WithBatchSize(1000), pq.WithCompressionLevel(1)},
			})
			got, err := first(t, content, parquet.Options{})
			if err != nil || got.fields["text.txt"] != text {
				t.Fatalf("%v, %d bytes", err, len(got.fields["text.txt"]))
			}
			_, err = first(t, content, parquet.Options{PageMemory: 65 << 20})
			if !errors.Is(err, parquet.ErrPageMemory) || errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "column text, row 0: page 0: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOtherWriters reads the mistakes of some writers that other readers accept.
func TestOtherWriters(t *testing.T) {
	long := strings.Repeat("long ", 40000)
	content := write(t, table{
		fields: schema.FieldList{leafNode("text", pq.Repetitions.Required, schema.StringLogicalType{}, pq.Types.ByteArray, 0)},
		groups: [][]data{{{values: []string{long}}}},
		props:  []pq.WriterProperty{pq.WithCompression(compress.Codecs.Zstd), pq.WithDictionaryDefault(false)},
	})
	size := string(binary.AppendVarint(nil, int64(len(long)+4))) // and some 30 bytes of a header
	at := bytes.LastIndex(content, []byte("text\x15\x0c\x16\x02\x16"))
	n := len("text\x15\x0c\x16\x02\x16")
	unsized := edit(t, content, string(content[at:at+n+len(size)]), string(content[at:at+n])+"\x00")
	got, err := first(t, unsized, parquet.Options{})
	if err != nil || got.fields["text.txt"] != long {
		t.Errorf("no decoded size: %v", err)
	}

	// A column chunk whose length lacks ten bytes, as parquet-mr omitted the header of the
	// dictionary page.
	const sizes = "shape\x15\x00\x16\x02\x16\x8a\x01\x16"
	short := edit(t, jsonFile(t), sizes+"\x8a\x01", sizes+"\x76")
	if _, err := first(t, short, parquet.Options{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a column chunk that is short: %v", err)
	}
	got, err = first(t, edit(t, short, "(\x19parquet-go version 17.0.0", "(\x0aparquet-mr"), parquet.Options{Columns: []string{"shape"}})
	if err != nil || got.fields["shape.json"] != `{"x":1}` {
		t.Errorf("one of parquet-mr: %v", err)
	}
}

// TestIndexesOfNoBits: a dictionary of one value needs no indexes, and some writers write none.
func TestIndexesOfNoBits(t *testing.T) {
	content := write(t, table{
		fields: schema.FieldList{leafNode("n", pq.Repetitions.Required, nil, pq.Types.Int64, 0)},
		groups: [][]data{{{values: []int64{77, 77, 77, 77, 77}}}},
	})
	const indexes = "\x01\x0a\x00" // one bit each, a run of five, of zeros
	if bytes.Count(content, []byte(indexes)) != 1 {
		t.Fatal("the writer writes something else")
	}
	for _, with := range []string{"\x00\x0a\x00", "\x00\x00\x00", indexes} {
		got := read(t, bytes.Replace(content, []byte(indexes), []byte(with), 1), parquet.Options{})
		if len(got) != 5 || got[0].fields["n.txt"] != "77" || got[4].fields["n.txt"] != "77" {
			t.Errorf("%q: %v", with, got)
		}
	}
}
