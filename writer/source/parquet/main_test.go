package parquet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// data are a leaf's values in one row group. defs and reps are nil for columns that need none.
type data struct {
	values     any
	defs, reps []int16
}

// table is a file to be written: its columns, and for each row group a data for each leaf.
type table struct {
	fields schema.FieldList
	groups [][]data
	props  []pq.WriterProperty
	meta   map[string]string
}

// write makes a Parquet file with Arrow's writer.
func write(t testing.TB, tab table) []byte {
	t.Helper()
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, tab.fields, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(pq.NewWriterProperties(tab.props...)))
	for k, v := range tab.meta {
		if err := w.AppendKeyValueMetadata(k, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, leaves := range tab.groups {
		g := w.AppendRowGroup()
		for _, d := range leaves {
			c, err := g.NextColumn()
			if err != nil {
				t.Fatal(err)
			}
			switch c := c.(type) {
			case *file.BooleanColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]bool), d.defs, d.reps)
			case *file.Int32ColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]int32), d.defs, d.reps)
			case *file.Int64ColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]int64), d.defs, d.reps)
			case *file.Int96ColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]pq.Int96), d.defs, d.reps)
			case *file.Float32ColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]float32), d.defs, d.reps)
			case *file.Float64ColumnChunkWriter:
				_, err = c.WriteBatch(d.values.([]float64), d.defs, d.reps)
			case *file.ByteArrayColumnChunkWriter:
				_, err = c.WriteBatch(byteArrays(d.values), d.defs, d.reps)
			case *file.FixedLenByteArrayColumnChunkWriter:
				var values []pq.FixedLenByteArray
				for _, v := range byteArrays(d.values) {
					values = append(values, pq.FixedLenByteArray(v))
				}
				_, err = c.WriteBatch(values, d.defs, d.reps)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func byteArrays(values any) (out []pq.ByteArray) {
	switch values := values.(type) {
	case []string:
		for _, v := range values {
			out = append(out, pq.ByteArray(v))
		}
	case [][]byte:
		for _, v := range values {
			out = append(out, pq.ByteArray(v))
		}
	}
	return out
}

// leafNode is a column of a logical type, or nil for none.
func leafNode(name string, rep pq.Repetition, logical schema.LogicalType, physical pq.Type, size int) schema.Node {
	if logical == nil {
		logical = schema.NoLogicalType{}
	}
	return schema.Must(schema.NewPrimitiveNodeLogical(name, rep, logical, physical, size, -1))
}

// listOf puts a list around an element, as the format wants it.
func listOf(name string, element schema.Node) schema.Node {
	inner := schema.MustGroup(schema.NewGroupNode("list", pq.Repetitions.Repeated, schema.FieldList{element}, -1))
	return schema.MustGroup(schema.NewGroupNodeLogical(name, pq.Repetitions.Optional, schema.FieldList{inner}, schema.NewListLogicalType(), -1))
}

// store puts files into memory.
func store(t testing.TB, files map[string][]byte) objstore.Store {
	t.Helper()
	st := mem.New()
	for name, content := range files {
		if _, err := objstore.Put(t.Context(), st, name, content, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// inputs are all of a store's objects, or those of these names.
func inputs(t testing.TB, st objstore.Store, names ...string) (in []source.Input) {
	t.Helper()
	if names == nil {
		for info, err := range st.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, info.Name)
		}
	}
	for _, name := range names {
		in = append(in, source.Input{Store: st, Name: name})
	}
	return in
}

// row is a sample, copied.
type row struct {
	key    string
	fields map[string]string
	attrs  map[string]format.AttrValue
}

// rows reads a source to its end. Rows that cannot be had are errors.
func rows(src *parquet.Rows) (out []row, skipped []error, err error) {
	for {
		s, err := src.Next(context.Background())
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			return out, skipped, nil
		case errors.As(err, &se):
			skipped = append(skipped, err)
			continue
		case err != nil:
			return out, skipped, err
		}
		out = append(out, copyOf(s))
	}
}

func copyOf(s writer.Sample) row {
	r := row{key: s.Key, fields: map[string]string{}, attrs: map[string]format.AttrValue{}}
	for _, f := range s.Fields {
		r.fields[f.Name] = string(f.Data)
	}
	for _, a := range s.Attrs {
		r.attrs[a.Name] = a
	}
	return r
}

// read makes a source of one file and reads all of it.
func read(t testing.TB, content []byte, opt parquet.Options) []row {
	t.Helper()
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, skipped, err := rows(src)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	return got
}

func sameFields(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
