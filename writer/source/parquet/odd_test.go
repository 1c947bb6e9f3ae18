package parquet_test

import (
	"bytes"
	"strings"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/writer/source/parquet"
)

// TestMapWithoutValues: a map of keys alone is a list of them, as map_no_value.parquet of
// apache/parquet-testing has it, and pyarrow reads it.
func TestMapWithoutValues(t *testing.T) {
	key := leafNode("key", pq.Repetitions.Required, nil, pq.Types.Int32, -1)
	inner := schema.MustGroup(schema.NewGroupNode("key_value", pq.Repetitions.Repeated, schema.FieldList{key}, -1))
	keys := schema.MustGroup(schema.NewGroupNodeLogical("m", pq.Repetitions.Required, schema.FieldList{inner}, schema.MapLogicalType{}, -1))
	content := write(t, table{fields: schema.FieldList{keys}, groups: [][]data{{{values: []int32{1, 2, 3}, defs: []int16{1, 1, 1}, reps: []int16{0, 1, 0}}}}})
	s, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"a.parquet": content})), parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.Next(t.Context())
	if err != nil || len(p.Fields) != 1 || p.Fields[0].Name != "m.npy" || !bytes.HasSuffix(p.Fields[0].Data, []byte{1, 0, 0, 0, 2, 0, 0, 0}) {
		t.Fatalf("%+v, %v", p, err)
	}
}

// TestMistakenPages: pyarrow before 3.0 compressed pages of version 2 and said that it did not, as
// in ARROW-17100.parquet of apache/arrow-testing. Of other programs, such a page is damaged.
func TestMistakenPages(t *testing.T) {
	values := make([]int32, 1000)
	for _, by := range []string{"parquet-cpp version 1.5.1-SNAPSHOT", "parquet-cpp-arrow version 9.0.0"} {
		content := write(t, table{
			fields: schema.FieldList{leafNode("x", pq.Repetitions.Required, nil, pq.Types.Int32, -1)},
			groups: [][]data{{{values: values}}},
			props:  []pq.WriterProperty{pq.WithCreatedBy(by), pq.WithDataPageVersion(pq.DataPageV2), pq.WithCompression(compress.Codecs.Snappy), pq.WithDictionaryDefault(false)},
		})
		r, err := file.NewParquetReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.RowGroup(0).MetaData().ColumnChunk(0)
		if err != nil {
			t.Fatal(err)
		}
		head := content[m.DataPageOffset():][:60]
		// The lengths of levels, and statistics. In front of these comes the denial, in the place of a
		// byte.
		at := bytes.Index(head, []byte{0x15, 0, 0x15, 0, 0x2c, 0x18, 4, 0, 0, 0, 0})
		if at < 0 {
			t.Fatalf("no header of version 2: %x", head)
		}
		copy(head[at+4:], []byte{0x12, 0x1c, 0x18, 3, 0, 0, 0})
		s, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"a.parquet": content})), parquet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := s.Next(t.Context())
		if old := strings.Contains(by, "1.5.1"); old && (err != nil || string(p.Fields[0].Data) != "0") || !old && (err == nil || !strings.Contains(err.Error(), "not compressed")) {
			t.Errorf("%s: %+v, %v", by, p, err)
		}
	}
}
