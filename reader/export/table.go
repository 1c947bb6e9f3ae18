package export

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/reader"
)

// A row group ends at the first sample with which it takes as many bytes in memory, or has as many
// rows. The bytes of a file depend on both.
const (
	groupBytes = 16 << 20
	groupRows  = 64 << 10
)

// table writes samples as rows of a Parquet file.
type table struct {
	columns []tableColumn
	w       *file.Writer
	out     *sink
	rows    int
	bytes   int
}

// tableColumn is a column, and its leaves in the order of the schema.
type tableColumn struct {
	column
	root   *tableNode
	leaves []*leaf
}

// sink keeps the first error of a writer: file.Writer panics when it cannot write the first bytes,
// and loses errors of others.
type sink struct {
	to  func([]byte) error
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err == nil {
		s.err = s.to(p)
	}
	return len(p), nil
}

var _ io.Writer = (*sink)(nil)

// newTable begins a file of these columns.
func newTable(columns []column, to func([]byte) error) (*table, error) {
	t := &table{out: &sink{to: to}}
	var fields schema.FieldList
	options := []parquet.WriterProperty{
		parquet.WithDictionaryDefault(false), parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithBatchSize(4096), parquet.WithCreatedBy("shardtool"),
	}
	text := []byte(`{"info":{"features":{`)
	for i, c := range columns {
		col := tableColumn{column: c}
		col.root = col.tree(c.stored, 0, 0)
		node, err := col.root.schema(c.name)
		if err != nil {
			return nil, err
		}
		fields = append(fields, node)
		if i > 0 {
			text = append(text, ',')
		}
		text = c.feature.AppendJSON(append(append(text, kinds.Quoted(c.name)...), ':'))
		if c.feature.Media() || c.list { // which are compressed already
			path := c.name + ".bytes"
			if c.list {
				path = c.name + ".list.element.bytes"
			}
			options = append(options, parquet.WithCompressionFor(path, compress.Codecs.Uncompressed),
				parquet.WithStatsFor(path, false))
		}
		t.columns = append(t.columns, col)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return nil, err
	}
	meta := metadata.NewKeyValueMetadata()
	if err := meta.Append("huggingface", string(append(text, "}}}"...))); err != nil {
		return nil, err
	}
	t.w = file.NewParquetWriter(t.out, root, file.WithWriterProps(parquet.NewWriterProperties(options...)),
		file.WithWriteMetadata(meta))
	return t, nil
}

// add adds a sample, and writes the row group if it is full.
func (t *table) add(s *reader.Sample) error {
	for i := range t.columns {
		c := &t.columns[i]
		if err := c.add(s); err != nil {
			return err
		}
	}
	t.rows++
	t.bytes += len(s.Key)
	for _, f := range s.Fields {
		t.bytes += len(f.Data)
	}
	levels := 0 // each item of an array has two, and up to 4 bytes more than in its payload
	for i := range t.columns {
		for k := range t.columns[i].leaves {
			levels += len(t.columns[i].leaves[k].defs)
		}
	}
	if t.rows < groupRows && t.bytes+8*levels < groupBytes {
		return nil
	}
	return t.flush()
}

// close writes what is left, and the end of the file.
func (t *table) close() error {
	if t.rows > 0 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return errors.Join(t.w.FlushWithFooter(), t.out.err)
}

// flush writes a row group.
func (t *table) flush() error {
	group := t.w.AppendRowGroup()
	for i := range t.columns {
		for k := range t.columns[i].leaves {
			chunk, err := group.NextColumn()
			if err == nil {
				err = t.columns[i].leaves[k].write(chunk)
			}
			if err != nil {
				return fmt.Errorf("column %q: %w", t.columns[i].name, err)
			}
		}
	}
	t.rows, t.bytes = 0, 0
	return errors.Join(group.Close(), t.out.err)
}

// write writes the values of a row group, and forgets them.
func (l *leaf) write(chunk file.ColumnChunkWriter) (err error) {
	switch w := chunk.(type) {
	case *file.BooleanColumnChunkWriter:
		_, err = w.WriteBatch(l.bools, l.defs, l.reps)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(l.i32, l.defs, l.reps)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(l.i64, l.defs, l.reps)
	case *file.Float32ColumnChunkWriter:
		_, err = w.WriteBatch(l.f32, l.defs, l.reps)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(l.f64, l.defs, l.reps)
	case *file.FixedLenByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(l.fixed, l.defs, l.reps)
	case *file.ByteArrayColumnChunkWriter:
		// A page ends after a batch only, and a value may be large. Absent values have a level alone.
		const batch = 64
		values := l.texts
		to := 0
		for from := 0; from < len(l.defs) && err == nil; from = to {
			to = min(from+batch, len(l.defs))
			for l.nested && to < len(l.defs) && l.reps[to] > 0 { // a page ends with a row
				to++
			}
			n, whole := 0, w.Descr().MaxDefinitionLevel()
			for _, def := range l.defs[from:to] {
				if def == whole {
					n++
				}
			}
			var reps []int16
			if l.nested {
				reps = l.reps[from:to]
			}
			_, err = w.WriteBatch(values[:n], l.defs[from:to], reps)
			values = values[n:]
		}
	}
	clear(l.texts)
	clear(l.fixed)
	*l = leaf{
		Scalar: l.Scalar, def: l.def, nested: l.nested, defs: l.defs[:0], reps: l.reps[:0], bools: l.bools[:0],
		i32: l.i32[:0], i64: l.i64[:0],
		f32: l.f32[:0], f64: l.f64[:0], fixed: l.fixed[:0], texts: l.texts[:0],
	}
	return errors.Join(err, chunk.Close())
}

// add adds the value of a sample, or null if it has none of the column's fields.
func (c *tableColumn) add(s *reader.Sample) error {
	if c.list {
		return c.files(s)
	}
	if c.fields == nil {
		if err := c.leaves[0].text(s.Key); err != nil {
			return fmt.Errorf("its key %q: %w", s.Key, err)
		}
		c.leaves[0].level(1, 0)
		return nil
	}
	var data []byte
	found := ""
	for _, name := range c.fields {
		if d, ok := s.Field(name); ok {
			if found != "" {
				return fmt.Errorf("sample %q has the fields %q and %q, and the column %q holds one of them: pack the data set again with other names: %w", s.Key, found, name, c.name, ErrName)
			}
			data, found = d, name
		}
	}
	if found == "" {
		c.root.none(0, 0)
		return nil
	}
	if err := c.value(s.Key, found, data); err != nil {
		return fieldError(s.Key, found, err)
	}
	return nil
}

// files adds a list of files: the elements that a sample has.
func (c *tableColumn) files(s *reader.Sample) error {
	next, rep, part := 0, int16(0), c.root.parts[0]
	for _, name := range c.fields { // by number
		data, ok := s.Field(name)
		if !ok {
			continue
		}
		if n, _ := fieldname.Element(name, c.name); n != next {
			return fieldError(s.Key, name, fmt.Errorf("it is not element %d of the list, which has no other before it",
				next))
		}
		if next++; len(data) == 0 {
			part.none(rep, part.def-1)
		} else {
			c.file(part, s.Key, name, data, rep)
		}
		rep = part.rep
	}
	if next == 0 {
		c.root.none(0, c.root.def)
	}
	return nil
}

// file adds the bytes of a file, and its name.
func (c *tableColumn) file(n *tableNode, key []byte, field string, data []byte, rep int16) {
	name := fmt.Appendf(nil, "%s.%s", key, field)
	if !utf8.Valid(name) {
		name = bytes.ToValidUTF8(name, []byte("\uFFFD"))
	}
	for i, part := range n.names {
		l, text := n.parts[i].leaf, name
		if part == "bytes" {
			text = bytes.Clone(data)
		}
		l.texts = append(l.texts, text)
		l.level(l.def, rep)
	}
}

// value adds a payload.
func (c *tableColumn) value(key []byte, field string, data []byte) error {
	if c.feature.Media() {
		c.file(c.root, key, field, data, 0)
		return nil
	}
	inner, dims := c.root, 0
	for len(inner.parts) == 1 && inner.names == nil {
		inner, dims = inner.parts[0], dims+1
	}
	scalar, number := inner.leaf != nil, inner.leaf != nil && inner.leaf.Base <= kinds.Bool
	switch {
	case len(data) == 0 && c.recorded &&
		!(c.root.leaf != nil && (c.root.leaf.Base == kinds.Text || c.root.leaf.Base == kinds.Binary)):
		c.root.none(0, 0)
		return nil
	case number && bytes.HasPrefix(data, []byte(npy.Magic)), scalar && dims > 0 && !c.recorded:
		return c.array(data, inner.leaf, dims)
	case dims == 0 && scalar:
		if c.root.leaf.Base == kinds.JSON && !json.Valid(data) {
			return errors.New("it is not JSON")
		}
		// of a stacked shard
		if is := c.root.leaf.Base; (is == kinds.Time || is == kinds.Duration) &&
			bytes.HasPrefix(data, []byte(npy.Magic)) {
			var err error
			if data, err = wholeNumber(data); err != nil {
				return err
			}
		}
		c.root.leaf.level(1, 0)
		return c.root.leaf.text(data)
	}
	return c.root.json(data, 0)
}

// wholeNumber returns the number of an array without a dimension, as text.
func wholeNumber(data []byte) ([]byte, error) {
	h, items, err := parseArray(data)
	if err != nil {
		return nil, err
	}
	if h.Kind != 'i' || h.Size != 8 || len(h.Shape) > 0 || h.Big {
		return nil, fmt.Errorf("it is an array of %s with %d dimensions, and an integer of 64 bits is wanted", h.Descr,
			len(h.Shape))
	}
	return strconv.AppendInt(nil, int64(binary.LittleEndian.Uint64(items)), 10), nil
}

// array adds an array, as lists in lists.
func (c *tableColumn) array(data []byte, l *leaf, dims int) error {
	h, items, err := parseArray(data)
	if err != nil {
		return err
	}
	dtype, err := dtypeOf(&h)
	if err != nil {
		return err
	}
	if is, err := kinds.ParseScalar(dtype); err != nil || is != l.Scalar || len(h.Shape) != dims {
		return fmt.Errorf("%w: it is an array of %s with %d dimensions, and the column of the type %s: a column has one type",
			ErrName, dtype, len(h.Shape), c.feature.AppendJSON(nil))
	}
	if empty := slices.Index(h.Shape, 0); empty >= 0 { // the lists of that dimension have no items
		n := int64(1)
		for _, dim := range h.Shape[:empty] {
			if n *= dim; n > groupRows*64 {
				return fmt.Errorf("%w: an array of shape %v has too many empty lists", ErrName, h.Shape)
			}
		}
		for i := range n {
			l.level(int16(1+2*empty), repetition(h.Shape[:empty], i))
		}
		return nil
	}
	at := places(&h)
	order := binary.ByteOrder(binary.LittleEndian)
	if h.Big {
		order = binary.BigEndian
	}
	for i := range int64(len(items) / h.Size) {
		l.item(items[at(i)*int64(h.Size):][:h.Size], &h, order)
		l.level(l.def, repetition(h.Shape, i))
	}
	return nil
}

// repetition returns the repetition level of the i-th item of an array: the first dimension, from
// 1, in which a list begins or goes on with it; 0 for the first item.
func repetition(shape []int64, i int64) int16 {
	if i == 0 {
		return 0
	}
	level := int16(len(shape))
	for d := len(shape) - 1; d > 0 && i%shape[d] == 0; d-- {
		i /= shape[d]
		level--
	}
	return level
}

// places returns where the i-th item in C order lies.
func places(h *npy.Header) func(i int64) int64 {
	if !h.Fortran || len(h.Shape) < 2 {
		return func(i int64) int64 { return i }
	}
	return func(i int64) (at int64) {
		stride := int64(1)
		for _, dim := range h.Shape {
			stride *= dim
		}
		for d := len(h.Shape) - 1; d >= 0; d-- {
			stride /= h.Shape[d]
			at += i % h.Shape[d] * stride
			i /= h.Shape[d]
		}
		return at
	}
}
