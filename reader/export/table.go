package export

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/npy"
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

// tableColumn is a column, and its leaves: one, or the two of a medium.
type tableColumn struct {
	column
	leaves []leaf
}

// leaf has the values of a row group of a leaf of the schema, in the slice of its physical type.
type leaf struct {
	defs, reps []int16
	bools      []bool
	i32        []int32
	i64        []int64
	f32        []float32
	f64        []float64
	halves     []parquet.FixedLenByteArray
	texts      []parquet.ByteArray
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
		parquet.WithDictionaryDefault(false), parquet.WithCompression(compress.Codecs.Zstd), parquet.WithBatchSize(4096), parquet.WithCreatedBy("shardtool"),
	}
	features := map[string]any{}
	for _, c := range columns {
		node, err := c.node()
		if err != nil {
			return nil, err
		}
		fields = append(fields, node)
		features[c.name] = c.dict()
		leaves := 1
		if c.media() {
			options = append(options, parquet.WithCompressionFor(c.name+".bytes", compress.Codecs.Uncompressed), parquet.WithStatsFor(c.name+".bytes", false))
			leaves = 2
		}
		t.columns = append(t.columns, tableColumn{column: c, leaves: make([]leaf, leaves)})
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{"info": map[string]any{"features": features}})
	if err != nil {
		return nil, err
	}
	meta := metadata.NewKeyValueMetadata()
	if err := meta.Append("huggingface", string(text)); err != nil {
		return nil, err
	}
	t.w = file.NewParquetWriter(t.out, root, file.WithWriterProps(parquet.NewWriterProperties(options...)), file.WithWriteMetadata(meta))
	return t, nil
}

// media reports whether the column has files, as a group of their bytes and their path.
func (c *column) media() bool {
	return c.name != "" && slices.Contains([]string{"Image", "Audio", "Video"}, c.feature.name)
}

// node returns the column's place in the schema.
func (c *column) node() (schema.Node, error) {
	optional := parquet.Repetitions.Optional
	text := func(name string, logical schema.LogicalType) (schema.Node, error) {
		return schema.NewPrimitiveNodeLogical(name, optional, logical, parquet.Types.ByteArray, -1, -1)
	}
	if c.media() {
		data, err := text("bytes", schema.NoLogicalType{})
		name, err2 := text("path", schema.StringLogicalType{})
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		return schema.NewGroupNode(c.name, optional, schema.FieldList{data, name}, -1)
	}
	name := c.name
	if c.dims > 0 {
		name = "element"
	}
	node, err := scalarNode(name, c.feature.name, c.dtype)
	for i := c.dims; i > 0 && err == nil; i-- {
		if name = "element"; i == 1 {
			name = c.name
		}
		var list schema.Node
		if list, err = schema.NewGroupNode("list", parquet.Repetitions.Repeated, schema.FieldList{node}, -1); err == nil {
			node, err = schema.NewGroupNodeLogical(name, optional, schema.FieldList{list}, schema.NewListLogicalType(), -1)
		}
	}
	return node, err
}

func scalarNode(name, class, dtype string) (schema.Node, error) {
	var logical schema.LogicalType = schema.NoLogicalType{}
	physical, length := parquet.Types.ByteArray, -1
	bits, _ := strconv.Atoi(strings.TrimLeft(dtype, "uintfloa"))
	switch {
	case class == "ClassLabel":
		physical = parquet.Types.Int64
	case class == "Json":
		logical = schema.JSONLogicalType{}
	case dtype == "string":
		logical = schema.StringLogicalType{}
	case dtype == "bool":
		physical = parquet.Types.Boolean
	case dtype == "float16":
		physical, length, logical = parquet.Types.FixedLenByteArray, 2, schema.Float16LogicalType{}
	case dtype == "float32":
		physical = parquet.Types.Float
	case dtype == "float64":
		physical = parquet.Types.Double
	case bits > 0:
		if physical = parquet.Types.Int32; bits == 64 {
			physical = parquet.Types.Int64
		}
		logical = schema.NewIntLogicalType(int8(bits), dtype[0] == 'i')
	}
	return schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Optional, logical, physical, length, -1)
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
		_, err = w.WriteBatch(l.halves, l.defs, l.reps)
	case *file.ByteArrayColumnChunkWriter:
		// A page ends after a batch only, and a value may be large. Absent values have a level alone.
		const batch = 64
		values := l.texts
		for from := 0; from < len(l.defs) && err == nil; from += batch {
			to := min(from+batch, len(l.defs))
			n, whole := 0, w.Descr().MaxDefinitionLevel()
			for _, def := range l.defs[from:to] {
				if def == whole {
					n++
				}
			}
			_, err = w.WriteBatch(values[:n], l.defs[from:to], nil)
			values = values[n:]
		}
	}
	clear(l.texts)
	*l = leaf{
		defs: l.defs[:0], reps: l.reps[:0], bools: l.bools[:0], i32: l.i32[:0], i64: l.i64[:0],
		f32: l.f32[:0], f64: l.f64[:0], halves: l.halves[:0], texts: l.texts[:0],
	}
	return errors.Join(err, chunk.Close())
}

// add adds the value of a sample, or null if it has none of the column's fields.
func (c *tableColumn) add(s *reader.Sample) error {
	if c.fields == nil {
		return c.text(s.Key, "its key")
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
		for i := range c.leaves {
			c.leaves[i].level(0, 0, c.dims)
		}
		return nil
	}
	if err := c.value(s.Key, found, data); err != nil {
		return fieldError(s.Key, found, err)
	}
	return nil
}

// level adds the levels of a value, with a repetition level only in a list.
func (l *leaf) level(def, rep int16, dims int) {
	l.defs = append(l.defs, def)
	if dims > 0 {
		l.reps = append(l.reps, rep)
	}
}

func (c *tableColumn) text(data []byte, what string) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("%s %q is not UTF-8, which a text must be", what, data[:min(len(data), 80)])
	}
	l := &c.leaves[0]
	l.texts = append(l.texts, bytes.Clone(data))
	l.level(1, 0, 0)
	return nil
}

// value adds a payload.
func (c *tableColumn) value(key []byte, field string, data []byte) error {
	l := &c.leaves[0]
	switch {
	case c.media():
		l.texts = append(l.texts, bytes.Clone(data))
		l.level(2, 0, 0)
		name := fmt.Appendf(nil, "%s.%s", key, field)
		if !utf8.Valid(name) {
			name = bytes.ToValidUTF8(name, []byte("\uFFFD"))
		}
		c.leaves[1].texts = append(c.leaves[1].texts, name)
		c.leaves[1].level(2, 0, 0)
		return nil
	case c.kind == "npy":
		return c.array(data)
	case c.kind == "int" || c.kind == "float":
		return c.number(data)
	case c.kind == "json" && !json.Valid(data):
		return errors.New("it is not JSON")
	case c.kind == "txt" || c.kind == "json":
		return c.text(data, "its text")
	}
	l.texts = append(l.texts, bytes.Clone(data))
	l.level(1, 0, 0)
	return nil
}

// number adds a number, which is a text, or an array without dimensions in a stacked shard.
func (c *tableColumn) number(data []byte) (err error) {
	l := &c.leaves[0]
	whole := c.kind == "int"
	var i int64
	var f float64
	switch {
	case bytes.HasPrefix(data, []byte(npy.Magic)):
		h, items, err := parseArray(data)
		if err != nil {
			return err
		}
		if len(h.Shape) != 0 || h.Size != 8 || h.Big || whole != (h.Kind == 'i') {
			return fmt.Errorf("an array of shape %v of %s, where a number is expected", h.Shape, h.Descr)
		}
		i = int64(binary.LittleEndian.Uint64(items))
		f = math.Float64frombits(uint64(i))
	case whole:
		i, err = strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	default:
		f, err = strconv.ParseFloat(string(bytes.TrimSpace(data)), 64)
	}
	if err != nil {
		return fmt.Errorf("%q is no %s: %w", data[:min(len(data), 80)], c.kind, errors.Unwrap(err))
	}
	if whole {
		l.i64 = append(l.i64, i)
	} else {
		l.f64 = append(l.f64, f)
	}
	l.level(1, 0, 0)
	return nil
}

// array adds an array, as lists in lists.
func (c *tableColumn) array(data []byte) error {
	h, items, err := parseArray(data)
	if err != nil {
		return err
	}
	dtype, err := dtypeOf(&h)
	if err != nil {
		return err
	}
	if dtype != c.dtype || len(h.Shape) != c.dims {
		return fmt.Errorf("%w: it is an array of %s with %d dimensions, and the first one of the data set is of %s with %d: a column has one type",
			ErrName, dtype, len(h.Shape), c.dtype, c.dims)
	}
	l := &c.leaves[0]
	if empty := slices.Index(h.Shape, 0); empty >= 0 { // the lists of that dimension have no items
		n := int64(1)
		for _, dim := range h.Shape[:empty] {
			if n *= dim; n > groupRows*64 {
				return fmt.Errorf("%w: an array of shape %v has too many empty lists", ErrName, h.Shape)
			}
		}
		for i := range n {
			l.level(int16(1+2*empty), repetition(h.Shape[:empty], i), c.dims)
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
		l.level(int16(1+2*c.dims), repetition(h.Shape, i), c.dims)
	}
	return nil
}

// repetition returns the repetition level of the i-th item of an array: the first dimension, from 1,
// in which a list begins or goes on with it; 0 for the first item.
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

// item adds an item of an array.
func (l *leaf) item(b []byte, h *npy.Header, order binary.ByteOrder) {
	var u uint64
	switch h.Size {
	case 1:
		u = uint64(b[0])
	case 2:
		u = uint64(order.Uint16(b))
	case 4:
		u = uint64(order.Uint32(b))
	case 8:
		u = order.Uint64(b)
	}
	switch {
	case h.Kind == 'b':
		l.bools = append(l.bools, u != 0)
	case h.Kind == 'f' && h.Size == 2:
		l.halves = append(l.halves, binary.LittleEndian.AppendUint16(nil, uint16(u)))
	case h.Kind == 'f' && h.Size == 4:
		l.f32 = append(l.f32, math.Float32frombits(uint32(u)))
	case h.Kind == 'f':
		l.f64 = append(l.f64, math.Float64frombits(u))
	case h.Size == 8:
		l.i64 = append(l.i64, int64(u))
	case h.Kind == 'i':
		shift := 64 - 8*h.Size
		l.i32 = append(l.i32, int32(int64(u<<shift)>>shift))
	default:
		l.i32 = append(l.i32, int32(uint32(u)))
	}
}
