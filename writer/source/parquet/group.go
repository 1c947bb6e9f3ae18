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
	"github.com/shardtool/shardtool/writer"
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

	single       []*column // columns whose values become cells
	rows.Samples           // of the current row; its origin precedes its key
}

// errNever means that no row of a row group can match the filters.
var errNever = errors.New("no row matches")

// openGroup opens the columns that are read.
func (f *openedFile) openGroup(p *rowSource, no int) (*group, error) {
	g := &group{plan: p.plan, of: f.of, no: no, rows: f.of.rows[no]}
	for _, n := range f.of.rows[:no] {
		g.first += n
	}
	w := p.plan.walk
	w.Next(&f.of.File)
	for _, c := range p.plan.read {
		c.group, c.node, c.leaves, c.cells = g, nil, nil, nil
		k := f.of.Constant(c.Name)
		c.stated = k != nil && k.Folder != ""
		if !c.constant || !c.stated { // else the walk adds it
			w.Has = append(w.Has, &c.Column)
		}
		if n := f.of.column(c.Name); c.constant && c.stated {
			cell := rows.Stated(k)
			c.node, c.v = c.first, value{u: cell.N, b: cell.B}
		} else if n != nil && !n.isNull() {
			if c.node = n; c.wide {
				c.narrow, c.node = n, n.widened()
			}
			if c.is = c.node.kind(); c.wide || (c.compared || c.stated) && c.is != rows.List {
				g.single = append(g.single, c)
			}
		}
		if c.Mask != "" { // two bytes, for floats of 16 bits
			zero := cmp.Or(c.node, c.first).leaf.appendArray(nil, value{b: make([]byte, 2)})
			c.Zero = writer.Field{Name: c.usual, Data: zero}
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
			never, err := g.neverIn(p.plan.Conditions[i], meta)
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

// neverIn reports whether the statistics of the row group prove that a condition holds for no row.
func (g *group) neverIn(f *rows.Condition, meta *metadata.RowGroupMetaData) (never bool, err error) {
	c := g.plan.byName[f.Column]
	if c.constant {
		cell := rows.Stated(g.of.Constant(c.Name))
		holds, err := f.Of(&cell)
		return err == nil && !holds, nil // the first row has the error
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
		never = err == nil && neverWithin(f, &c.node.leaf, stats, g.rows)
		return nil
	})
	return never, nil
}

func (g *group) open(p *rowSource, f *openedFile, rg *file.RowGroupReader) error {
	var chunks []chunk
	var metas []*metadata.ColumnChunkMetaData
	for _, c := range g.plan.read {
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
	for _, c := range g.plan.read {
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
	for _, c := range g.plan.read {
		if c.node == nil || c.constant {
			continue
		}
		cells := columns[slices.Index(f.of.columns, f.of.column(c.Name))]
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
	return fmt.Errorf("%s %d, column %s, row %d: %w", g.of.unit(), g.no, c.Name, g.row, err)
}

// appendOrigin appends the position of the current row.
func (g *group) appendOrigin(b []byte) []byte {
	b = append(append(append(append(b, g.of.Path...), ": "...), g.of.unit()...), ' ')
	b = strconv.AppendInt(b, int64(g.no), 10)
	return strconv.AppendInt(append(b, ", row "...), g.row, 10)
}

// load reads the column's value of the next row, which is row number row.
func (c *column) load(row int64) (err error) {
	def := int16(0)
	switch {
	case c.constant && c.stated:
		return nil
	case c.node == nil:
		c.Cell.Kind = rows.Null
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
	if c.Cell.Kind = c.is; def < c.node.def {
		c.Cell.Kind = rows.Null
	}
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

// next reads a row. ok is false if a condition leaves it out.
func (g *group) next() (s writer.Sample, ok bool, err error) {
	row := g.first + g.row
	g.Reset()
	g.Keys = g.appendOrigin(g.Keys)
	origin := len(g.Keys)
	if g.bad == nil {
		g.bad = g.load()
	}
	g.row++
	if err = g.bad; err == nil {
		w := g.plan.walk
		err = protect(func() (err error) {
			if err = g.setCells(); err == nil {
				ok, err = w.Take(row, &g.Samples)
			}
			return err
		})
		if err != nil && w.At != nil {
			err = fmt.Errorf("column %s: %w", w.At.Name, err)
		}
	}
	if !ok && err == nil {
		return s, false, nil
	}
	all := string(g.Keys) // one allocation for both
	s = writer.Sample{Key: all[origin:], Origin: all[:origin], Source: g.of.Path, Row: row + 1}
	if err != nil {
		return writer.Sample{}, false, g.plan.Refused(s, err)
	}
	s.Fields, s.Attrs = g.Fields, g.Attrs
	return s, true, nil
}

// setCells sets the cells that are compared. Fields are made of the values that were loaded.
func (g *group) setCells() error {
	g.plan.walk.At = nil
	for _, c := range g.single {
		if c.Cell.Kind == rows.Null {
			continue
		}
		if g.plan.walk.At = &c.Column; c.wide {
			if err := c.widen(int(g.row) - 1); err != nil {
				return err
			}
		}
		if l := &c.node.leaf; c.is != rows.List {
			if err := l.checkTime(c.v); err != nil { // any order of a time that is none would be wrong
				return err
			}
			if l.set(&c.Cell, c.v); c.stated {
				c.Cell.B = l.appendText(nil, c.v)
			}
		}
	}
	return nil
}

// Empty returns the name of an empty field. A list of files has none.
func (c *column) Empty() (string, error) {
	if c.form == formFiles {
		return "", nil
	}
	return c.usual, nil
}

// load reads the next row of all columns. A panic of the library becomes an error of the column.
func (g *group) load() error {
	var at *column
	err := protect(func() error {
		for _, at = range g.plan.read {
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

// AddFields adds the field of the value, or the fields of a list of files.
func (c *column) AddFields(to *rows.Samples) (err error) {
	g, begin := c.group, len(to.Data)
	switch c.form {
	case formFiles:
		return c.addFiles(to)
	case formRaw:
		return to.Add(c.usual, c.v.b)
	case formText:
		if err := c.node.leaf.checkTime(c.v); err != nil {
			return err
		}
		if l := &c.node.leaf; l.scalar.class == classTime { // of a day, in the unit of the feature
			to.Data = strconv.AppendInt(to.Data, l.ofDay(c.v), 10)
		} else {
			to.Data = l.appendText(to.Data, c.v)
		}
		return to.Add(c.usual, to.Since(begin))
	case formScalar:
		l := &c.node.leaf
		if err := l.checkTime(c.v); err != nil {
			return err
		}
		to.Data = l.appendArray(to.Data, c.v)
		return to.Add(c.usual, to.Since(begin))
	case formFile:
		if c.v.b == nil {
			return fmt.Errorf("its bytes are null, and the file %q is stored elsewhere: write the data set again with the files embedded", c.path.b)
		}
		return to.Add(c.fieldName(extension(c.path.b, c.v.b)), c.v.b)
	}
	if c.cells != nil && (!c.wide || c.narrow.tensorScalar().class == classDouble) { // else shredded, and wider
		row := int(g.row) - 1 // it was counted
		out, ok, err := c.cellNumpy(to.Data, row)
		if err != nil {
			return err
		}
		if ok {
			to.Data = out
			return to.Add(c.fieldName("npy"), to.Since(begin))
		}
		c.shred(row)
	}
	a, err := c.assembly()
	if err != nil {
		return err
	}
	if c.form == formNumpy {
		out, ok, err := a.numpy(to.Data)
		if err != nil {
			return err
		}
		if ok {
			to.Data = out
			return to.Add(c.fieldName("npy"), to.Since(begin))
		}
	}
	if to.Data, err = a.json(to.Data); err != nil {
		return err
	}
	if a.twice && !g.plan.twice && g.plan.log != nil {
		g.plan.twice = true
		g.plan.log.Warn("a map has a key twice: such maps become lists of pairs", "column", c.Name, "file", g.of.Path,
			"row", g.first+g.row)
	}
	return to.Add(c.fieldName("json"), to.Since(begin))
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

// addFiles adds a field for each element of a list of files.
func (c *column) addFiles(to *rows.Samples) error {
	if c.cells != nil {
		c.shred(int(c.group.row) - 1)
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
		_ = to.Add(c.elementName(number, extension(path.b, file.b)), file.b)
		number++
	}
	return nil
}

// elementName returns the name of the field of an element.
func (c *column) elementName(number int, ext string) string {
	name := strconv.Itoa(number) + "." + ext
	full, ok := c.names[name]
	if !ok {
		if full = c.Base + "." + name; len(c.names) < 2*fieldname.MaxElements {
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
