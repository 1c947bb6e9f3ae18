package parquet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow/array"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/fieldname"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// group reads the rows of one row group.
type group struct {
	plan  *plan
	of    *parquetFile
	first int64 // number of its first row in the file
	no    int
	rows  int64
	row   int64 // next row
	ahead *ahead
	// bad is the error that stopped reading. Every later row fails with it.
	bad error

	fields []writer.Field
	attrs  []format.AttrValue
	buf    []byte
	text   []byte // origin and key
}

// errNever means that no row of a row group can match the filters.
var errNever = errors.New("no row matches")

// openGroup opens the columns that are read.
func (f *openedFile) openGroup(p *rowSource, no int) (*group, error) {
	g := &group{plan: p.plan, of: f.of, no: no, rows: f.of.rows[no]}
	for _, n := range f.of.rows[:no] {
		g.first += n
	}
	for _, c := range p.plan.columns {
		c.node, c.leaves, c.cells = nil, nil, nil
		if c.constant {
			c.setConstant(f.of)
			continue
		}
		c.folder = f.of.Constant(c.name)
		if n := f.of.column(c.name); n != nil && c.wanted && !n.isNull() {
			if c.node = n; c.wide {
				c.narrow, c.node = n, n.widened()
			}
		}
	}
	if f.arrow != nil {
		return g, g.openRecords(f)
	}
	rg := f.reader.RowGroup(no)
	meta := rg.MetaData()
	if p.plan.Expr != nil {
		var failed error
		never := p.plan.Expr.Never(func(i int) bool {
			never, err := p.plan.filters[i].neverIn(p.plan.Conditions[i], meta, g.rows)
			failed = cmp.Or(failed, err)
			return never
		})
		if failed != nil {
			return nil, failed
		}
		if never {
			return g, errNever
		}
	}
	return g, g.open(p, f, rg)
}

// neverIn reports whether the statistics of a row group prove that the condition holds for no row.
func (c *column) neverIn(f *rows.Condition, meta *metadata.RowGroupMetaData, rows int64) (never bool, err error) {
	if c.constant {
		return !f.Of(c.single()), nil
	}
	if c.node == nil || c.node.shape != shapeScalar || c.wide { // statistics are of the file's type
		return false, nil
	}
	chunk, err := meta.ColumnChunk(c.node.first)
	if err != nil {
		return false, err
	}
	_ = protect(func() error { // unreadable statistics prove nothing
		stats, err := chunk.Statistics()
		never = err == nil && neverWithin(f, &c.node.leaf, stats, rows)
		return nil
	})
	return never, nil
}

// single returns the value of the current row as conditions and attributes take it.
func (c *column) single() *rows.Cell {
	switch {
	case c.null || c.node == nil:
		c.one = rows.Cell{}
	case c.node.shape != shapeScalar:
		c.one = rows.Cell{Kind: rows.List}
	default:
		c.one = c.node.leaf.cell(c.v)
	}
	return &c.one
}

func (g *group) open(p *rowSource, f *openedFile, rg *file.RowGroupReader) error {
	var chunks []chunk
	var metas []*metadata.ColumnChunkMetaData
	for _, c := range g.plan.columns {
		for i := 0; c.node != nil && i <= c.node.last-c.node.first; i++ {
			m, err := rg.MetaData().ColumnChunk(c.node.first + i)
			if err == nil {
				err = knownCodec(m.Compression())
			}
			if err != nil {
				return g.fail(c, err)
			}
			start, length := chunkRange(m)
			room := f.of.Info.Size - footerTail - start
			chunks = append(chunks, chunk{start, max(length, min(length+f.uncounted, room))})
			metas = append(metas, m)
		}
	}
	if f.of.Remote {
		g.ahead = newAhead(f.at, chunks)
	}
	props := pq.NewReaderProperties(nil)
	props.BufferedStreamEnabled = true
	props.BufferSize = 64 << 10
	// Arrow did so before version 3 of its C++ library:
	// https://issues.apache.org/jira/browse/ARROW-10353
	mistaken := strings.HasPrefix(f.reader.MetaData().GetCreatedBy(), "parquet-cpp version 1.")
	next := 0
	for _, c := range g.plan.columns {
		for i := 0; c.node != nil && i <= c.node.last-c.node.first; i++ {
			var from io.ReaderAt = f.at
			m, at := metas[next], chunks[next]
			if g.ahead != nil {
				from = g.ahead.ranges[at]
			}
			next++
			stream, err := props.GetStream(from, at.start, at.length)
			if err != nil {
				return err
			}
			for len(c.bufs) <= i {
				c.bufs = append(c.bufs, &pageBuffers{stored: &p.stored})
				c.parts = append(c.parts, &entries{})
			}
			pages := &pageReader{col: f.reader.MetaData().Schema.Column(c.node.first + i), stream: stream,
				left: at.length, codec: m.Compression(),
				values: m.NumValues(), most: mostDecoded(m), memory: p.pageMemory, mistaken: mistaken, bufs: c.bufs[i],
				dictionary: -1}
			c.leaves = append(c.leaves, newLeaf(pages.col, pages))
		}
	}
	return nil
}

// openRecords decodes the records of the group, and gives each column its array.
func (g *group) openRecords(f *openedFile) error {
	columns, err := f.arrow.records(g.no)
	if err != nil {
		return err
	}
	for _, c := range g.plan.columns {
		if c.node == nil || c.constant {
			continue
		}
		cells := columns[slices.Index(f.of.columns, f.of.column(c.name))]
		if int64(cells.Len()) != g.rows {
			return g.fail(c, corruptf("it has %d of %d rows", cells.Len(), g.rows))
		}
		if err := checkData(cells); err != nil {
			return g.fail(c, err)
		}
		for len(c.parts) <= c.node.last-c.node.first {
			c.parts = append(c.parts, &entries{})
		}
		c.cells = array.MakeFromData(cells)
	}
	return nil
}

// mostDecoded returns the maximum decoded size of a page of a column chunk, by the footer.
func mostDecoded(m *metadata.ColumnChunkMetaData) int64 {
	const slack = 64 << 10              // some writers include headers
	if m.TotalUncompressedSize() <= 0 { // early versions of DuckDB write 0
		return math.MaxInt32
	}
	return max(m.TotalUncompressedSize(), m.TotalCompressedSize()) + slack
}

func (g *group) close() {
	if g.ahead != nil {
		g.ahead.close()
	}
}

// fail adds the position to an error.
func (g *group) fail(c *column, err error) error {
	return fmt.Errorf("%s %d, column %s, row %d: %w", g.of.unit(), g.no, c.name, g.row, err)
}

// names returns the position of the current row, and its key if no column has it.
func (g *group) names(row int64) (origin, key string) {
	b := append(append(append(append(g.text[:0], g.of.Path...), ": "...), g.of.unit()...), ' ')
	b = strconv.AppendInt(b, int64(g.no), 10)
	b = strconv.AppendInt(append(b, ", row "...), g.row, 10)
	end := len(b)
	if g.plan.key == nil {
		b = fields.AppendRowKey(b, g.of.Stem, row)
	}
	g.text = b
	all := string(b) // one allocation for both
	return all[:end], all[end:]
}

// load reads the column's value of the next row, which is row number row.
func (c *column) load(row int64) (err error) {
	def := int16(0)
	switch {
	case c.constant:
		return nil
	case c.node == nil:
		c.null = true
		return nil
	case c.cells != nil:
		c.loadCell(int(row))
		return nil
	case c.node.shape == shapeScalar:
		_, def, c.v, err = c.leaves[0].next()
	case c.form == formFile:
		def, err = c.loadFile()
	default:
		for i, l := range c.leaves {
			if err := c.parts[i].gather(l); err != nil {
				return err
			}
		}
		def = c.node.def // entries of a large cell may be missing
		if e := c.parts[0]; len(e.defs) > 0 {
			def = e.defs[0]
		}
	}
	c.null = def < c.node.def
	return err
}

// loadFile reads a struct of bytes and path.
func (c *column) loadFile() (def int16, err error) {
	content, name := c.node.fileParts()
	c.v, c.path = value{}, value{}
	for _, part := range []struct {
		n   *node
		dst *value
	}{{content, &c.v}, {name, &c.path}} {
		_, d, v, err := c.leaves[part.n.first-c.node.first].next()
		if err != nil {
			return 0, err
		}
		def = max(def, d)
		if d >= part.n.def && !part.n.isNull() {
			*part.dst = v
		}
	}
	return def, nil
}

// next reads a row. ok is false if a filter drops the row.
func (g *group) next() (s writer.Sample, ok bool, err error) {
	row := g.first + g.row
	origin, key := g.names(row)
	skip := func(err error) (writer.Sample, bool, error) {
		wanted := g.plan.nulls == source.NullsSkip && errors.Is(err, source.ErrNulls)
		return writer.Sample{}, false, &writer.SampleError{Origin: origin, Key: s.Key, Source: g.of.Path, Row: row + 1,
			Err: err, LeaveOut: wanted}
	}
	if g.bad == nil {
		g.bad = g.load()
	}
	if g.bad != nil {
		g.row++
		return skip(g.bad)
	}
	g.row++
	for _, c := range g.plan.columns {
		if c.wide && c.wanted && c.node != nil {
			if err := c.widen(int(g.row) - 1); err != nil {
				return skip(fmt.Errorf("column %s: %w", c.name, err))
			}
		}
		if c.folder != nil && c.wanted {
			if err := c.checkFolder(); err != nil {
				return skip(err)
			}
		}
	}
	for i, c := range g.plan.filters { // any order of a time that is none would be wrong
		if !g.plan.Conditions[i].Nulls() && !c.null && c.node.shape == shapeScalar {
			if err := c.node.leaf.checkTime(c.v); err != nil {
				return skip(fmt.Errorf("column %s: %w", c.name, err))
			}
		}
	}
	if g.plan.Expr != nil && !g.plan.Expr.Holds(func(i int) bool {
		return g.plan.Conditions[i].Of(g.plan.filters[i].single())
	}) {
		return s, false, nil
	}
	if s.Key = key; g.plan.key != nil {
		if s.Key, err = g.key(g.plan.key); err != nil {
			return skip(err)
		}
	}
	s.Origin, s.Source, s.Row = origin, g.of.Path, row+1
	if err := g.sample(); err != nil {
		return skip(err)
	}
	s.Fields, s.Attrs = g.fields, g.attrs
	return s, true, nil
}

// sample converts the loaded values to fields and attributes.
func (g *group) sample() error {
	var at *column
	g.buf, g.fields, g.attrs = g.buf[:0], g.fields[:0], g.attrs[:0]
	some := false
	err := protect(func() error {
		for _, at = range g.plan.columns {
			null := at.node == nil || at.null
			if at.field && at.mask != "" {
				g.masked(at, null)
			}
			if !at.field || null {
				continue
			}
			some = true
			if at.form == formFiles {
				if err := g.files(at); err != nil {
					return err
				}
				continue
			}
			name, data, err := g.field(at)
			if err != nil {
				return err
			}
			g.fields = append(g.fields, writer.Field{Name: name, Data: data})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("column %s: %w", at.name, err)
	}
	if !some || len(g.fields) == 0 {
		if g.plan.nulls != source.NullsEmpty {
			return source.ErrNulls
		}
		if g.empty(); len(g.fields) == 0 { // lists, which have no field if they are empty
			return source.ErrNulls
		}
	}
	for i, c := range g.plan.attrs {
		v, ok, err := g.plan.Attributes[i].Value(c.single())
		if err != nil {
			return err
		}
		if ok {
			g.attrs = append(g.attrs, v)
		}
	}
	return nil
}

// masked adds the field that says whether a number is there, and 0 where it is not.
func (g *group) masked(c *column, null bool) {
	there := byte(1)
	if null {
		there = 0
	}
	begin := len(g.buf)
	g.buf = append(npy.AppendHeader[int](g.buf, "|b1"), there)
	g.fields = append(g.fields, writer.Field{Name: c.mask, Data: g.buf[begin:len(g.buf):len(g.buf)]})
	if !null {
		return
	}
	of := cmp.Or(c.node, c.first)
	s, v := of.leaf.number(value{b: make([]byte, 2)}) // for floats of 16 bits
	dtype, _ := s.dtype()
	begin = len(g.buf)
	g.buf = s.appendRaw(npy.AppendHeader[int](g.buf, dtype), v)
	g.fields = append(g.fields, writer.Field{Name: c.usual, Data: g.buf[begin:len(g.buf):len(g.buf)]})
}

// empty adds an empty field for each column.
func (g *group) empty() {
	for _, c := range g.plan.columns {
		if c.field && c.form != formFiles && c.mask == "" {
			g.fields = append(g.fields, writer.Field{Name: c.usual})
		}
	}
}

// load reads the next row of all columns. A panic of the library becomes an error of the column.
func (g *group) load() error {
	var at *column
	err := protect(func() error {
		for _, at = range g.plan.columns {
			if !at.wanted {
				continue
			}
			if err := at.load(g.row); err != nil {
				if err == io.EOF {
					err = fmt.Errorf("it ends %d rows early", g.rows-g.row)
				}
				if errors.Is(err, format.ErrTooLarge) {
					return err
				}
				return corruptf("%w", err)
			}
		}
		return nil
	})
	if err != nil {
		return g.fail(at, err)
	}
	return nil
}

// checkFolder checks that the row has the value of the folder.
func (c *column) checkFolder() error {
	switch {
	case c.node == nil || c.null:
		return c.folder.Check(true, nil)
	case c.node.shape != shapeScalar:
		return c.folder.Twice("no single value")
	}
	return c.folder.Check(false, c.node.leaf.appendText(nil, c.v))
}

func (g *group) key(c *column) (string, error) {
	if c.null {
		return "", fields.NoKey(c.name, "null:", " is not null")
	}
	key := string(c.node.leaf.appendText(nil, c.v))
	return key, fields.CheckKey(c.name, key)
}

// field converts the value of a column to a field.
func (g *group) field(c *column) (name string, data []byte, err error) {
	begin := len(g.buf)
	switch c.form {
	case formRaw:
		return c.usual, c.v.b, nil
	case formText:
		if err := c.node.leaf.checkTime(c.v); err != nil {
			return "", nil, err
		}
		if l := &c.node.leaf; l.scalar.class == classTime { // of a day, in the unit of the feature
			g.buf = strconv.AppendInt(g.buf, l.ofDay(c.v), 10)
		} else {
			g.buf = l.appendText(g.buf, c.v)
		}
		return c.usual, g.buf[begin:len(g.buf):len(g.buf)], nil
	case formScalar:
		l := &c.node.leaf
		if err := l.checkTime(c.v); err != nil {
			return "", nil, err
		}
		s, v := l.number(c.v)
		dtype, _ := s.dtype()
		g.buf = s.appendRaw(npy.AppendHeader[int](g.buf, dtype), v)
		return c.usual, g.buf[begin:len(g.buf):len(g.buf)], nil
	case formFile:
		if c.v.b == nil {
			return "", nil, fmt.Errorf("its bytes are null, and the file %q is stored elsewhere: write the data set again with the files embedded", c.path.b)
		}
		return c.fieldName(extension(c.path.b, c.v.b)), c.v.b, nil
	}
	if c.cells != nil && (!c.wide || c.narrow.tensorScalar().class == classDouble) { // else shredded, and wider
		row := int(g.row) - 1 // it was counted
		out, ok, err := c.cellNumpy(g.buf, row)
		if err != nil {
			return "", nil, err
		}
		if ok {
			g.buf = out
			return c.fieldName("npy"), g.buf[begin:len(g.buf):len(g.buf)], nil
		}
		c.shred(row)
	}
	a, err := c.assembly()
	if err != nil {
		return "", nil, err
	}
	if c.form == formNumpy {
		out, ok, err := a.numpy(g.buf)
		if err != nil {
			return "", nil, err
		}
		if ok {
			g.buf = out
			return c.fieldName("npy"), g.buf[begin:len(g.buf):len(g.buf)], nil
		}
	}
	if g.buf, err = a.json(g.buf); err != nil {
		return "", nil, err
	}
	if a.twice && !g.plan.twice && g.plan.log != nil {
		g.plan.twice = true
		g.plan.log.Warn("a map has a key twice: such maps become lists of pairs", "column", c.name, "file", g.of.Path,
			"row", g.first+g.row)
	}
	return c.fieldName("json"), g.buf[begin:len(g.buf):len(g.buf)], nil
}

// assembly returns the parts of the current row's value.
func (c *column) assembly() (assembly, error) {
	parts := c.parts[:c.node.last-c.node.first+1]
	for _, e := range parts {
		if e.large {
			return assembly{}, fmt.Errorf("%w: its value takes more than %d MiB to put together", format.ErrTooLarge,
				maxCell>>20)
		}
	}
	return assembly{root: c.node, leaves: parts}, nil
}

// files adds a field for each element of a list of files.
func (g *group) files(c *column) error {
	if c.cells != nil {
		c.shred(int(g.row) - 1)
	}
	a, err := c.assembly()
	if err != nil {
		return err
	}
	list, number := c.node, 0
	content, name := list.kids[0].fileParts()
	contents, names := a.lead(content), a.lead(name)
	if len(contents.defs) != len(names.defs) {
		return errUneven
	}
	at, nameAt := 0, 0 // values that are not null
	for i, def := range contents.defs {
		if max(def, names.defs[i]) < list.elem {
			continue // an empty list
		}
		if number == fieldname.MaxElements {
			return fmt.Errorf("it has more than %d files", fieldname.MaxElements)
		}
		var file, path value
		embedded := def >= content.def && !content.isNull()
		if embedded {
			file, _ = contents.value(at)
			at++
		}
		if names.defs[i] >= name.def && !name.isNull() {
			path, _ = names.value(nameAt)
			nameAt++
		}
		if !embedded && len(path.b) > 0 {
			return fmt.Errorf("the bytes of its element %d are null, and the file %q is stored elsewhere: write the data set again with the files embedded", number, path.b)
		}
		g.fields = append(g.fields, writer.Field{Name: c.elementName(number, extension(path.b, file.b)), Data: file.b})
		number++
	}
	return nil
}

// elementName returns the name of the field of an element.
func (c *column) elementName(number int, ext string) string {
	name := strconv.Itoa(number) + "." + ext
	full, ok := c.names[name]
	if !ok {
		if full = c.base + "." + name; len(c.names) < 2*fieldname.MaxElements {
			c.names[name] = full
		}
	}
	return full
}

// extension returns the extension of a file in a column, by its name or else by its first bytes.
func extension(name, content []byte) string {
	ext := strings.ToLower(strings.TrimPrefix(path.Ext(string(name)), "."))
	plain := len(ext) > 0 && len(ext) <= 5
	for _, r := range ext {
		plain = plain && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	}
	if plain {
		return ext
	}
	for _, m := range magics {
		if bytes.HasPrefix(content, []byte(m.begin)) &&
			(m.at8 == "" || len(content) >= 8 && bytes.HasPrefix(content[8:], []byte(m.at8))) {
			return m.ext
		}
	}
	return "bin"
}

// magics are the bytes at the beginning of files, and at offset 8, by their extensions.
var magics = []struct{ ext, begin, at8 string }{
	{"png", "\x89PNG\r\n\x1a\n", ""}, {"jpg", "\xff\xd8\xff", ""}, {"gif", "GIF87a", ""}, {"gif", "GIF89a", ""}, {"webp", "RIFF", "WEBP"},
	{"wav", "RIFF", "WAVE"}, {"flac", "fLaC", ""}, {"ogg", "OggS", ""}, {"mp3", "ID3", ""}, {"mp3", "\xff\xfb", ""},
}

// skip reads over rows that were packed before.
func (g *group) skip(rows int64) {
	for g.row < min(rows, g.rows) {
		if g.bad == nil {
			g.bad = g.load()
		}
		g.row++
	}
}
