package lines

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/fields"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// chunk parses the rows of a chunk.
func (p *parser) chunk(c *chunk) {
	p.valid = c.of.comma != tfRecord && c.of.shard == nil && utf8.Valid(c.buf)
	p.chunks++
	switch {
	case c.long:
		c.add(c.line, c.after, tooLongError(c.limit))
	case c.of.comma != 0 && c.of.comma != textLine:
		for _, s := range c.spans {
			after := place{off: c.off + int64(s.end), line: s.line + s.lines, row: s.row + 1}
			err := s.bad
			if err == nil {
				p.reset()
				switch b := c.buf[s.begin:s.end]; c.of.comma {
				case tfRecord:
					err = p.example(c, b)
				case jsonList:
					_, err = p.jsonLine(c, b)
				case mdsShard:
					err = p.mdsSample(c, b)
				default:
					err = p.csvRow(c, b)
				}
			}
			p.finish(c, place{line: s.line, row: s.row}, after, err)
		}
	default:
		p.lines(c)
	}
	c.keys = string(c.names)
}

// lines parses lines of JSON or text.
func (p *parser) lines(c *chunk) {
	at := c.place
	for b := c.buf; len(b) > 0; {
		end := lineEnd(b)
		if end == 0 {
			end = len(b)
		}
		line := b[:end]
		b = b[end:]
		begin := at
		at.off, at.line, at.row = at.off+int64(end), at.line+1, at.row+1
		p.reset()
		var err error
		if end > c.limit {
			err = tooLongError(c.limit)
		} else if c.of.comma == textLine {
			err = p.textLine(c.of, line)
		} else if blank, bad := p.jsonLine(c, line); blank {
			continue
		} else if bad != nil {
			err = bad
		}
		p.finish(c, begin, at, err)
	}
}

// reset prepares for the next row.
func (p *parser) reset() {
	p.forget()
	p.row++
	p.present = p.present[:0]
}

// finish adds the current row to the chunk, unless a filter drops it.
func (p *parser) finish(c *chunk, at, after place, err error) {
	if err == nil {
		err = p.constants(c)
	}
	if err != nil {
		c.add(at.line, after, err)
		return
	}
	if p.seen != nil {
		p.seen()
	}
	if where := p.plan.Expr; where != nil && !where.Holds(func(i int) bool {
		return p.plan.Conditions[i].Of(p.value(p.filters[i]))
	}) {
		c.dropped++
		return
	}
	r := c.add(at.line, after, nil)
	if r.err = p.appendKey(c, at.row); r.err == nil {
		r.lastKey = int32(len(c.names))
		r.err = p.sample(c)
	}
	r.lastField, r.lastAttr = int32(len(c.fields)), int32(len(c.attrs))
}

// constants gives the row the columns of its file's folders.
func (p *parser) constants(c *chunk) error {
	for i := range c.of.Constants {
		k := &c.of.Constants[i]
		col := p.find(k.Name)
		switch {
		case !col.wanted:
			continue
		case col.row == p.row && (col.v.Kind == rows.List || col.v.Kind == rows.Object || col.v.Kind == rows.Array):
			return k.Twice("no single value")
		case col.row == p.row:
			if err := k.Check(col.v.Kind == rows.Null, col.v.B); err != nil {
				return err
			}
			continue
		case k.Folder == "":
			continue
		}
		col.row, col.v = p.row, rows.Cell{Kind: rows.Text, B: []byte(k.Text)}
		if k.Integer {
			col.v.Kind = rows.Digits
		}
		if k.Null {
			col.v = rows.Cell{}
		}
		p.present = append(p.present, col)
	}
	return nil
}

func (p *parser) appendKey(c *chunk, number int64) error {
	col := p.key
	if col == nil {
		c.names = fields.AppendRowKey(c.names, c.of.Stem, number)
		return nil
	}
	v := p.value(col)
	switch v.Kind {
	case rows.Text, rows.Bytes, rows.Word, rows.Digits:
	case rows.Null:
		what := "null:"
		if col.row != p.row {
			what = fmt.Sprintf("missing: choose another one of %s, or", p.names())
		}
		return fields.NoKey(col.name, what, " is not null")
	default:
		return fmt.Errorf("the key, column %s, is %s: a key is a string or an integer", quoted(col.name),
			v.Kind)
	}
	if err := fields.CheckKey(col.name, string(v.B)); err != nil {
		return err
	}
	c.names = append(c.names, v.B...)
	return nil
}

// sample converts the values to fields and attributes.
func (p *parser) sample(c *chunk) error {
	first := len(c.fields)
	for _, col := range p.present {
		if !col.field || col.v.Kind == rows.Null {
			continue
		}
		if err := p.field(c, col); err != nil {
			return err
		}
	}
	if len(c.fields) == first {
		if err := p.empty(c); err != nil {
			return err
		}
	}
	made := c.fields[first:]
	slices.SortFunc(made, func(a, b writer.Field) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.plan.Attributes {
		out, ok, err := p.plan.Attributes[i].Value(p.value(p.attrs[i]))
		if err != nil {
			return err
		}
		if ok {
			c.attrs = append(c.attrs, out)
		}
	}
	return nil
}

// empty gives a row without values the empty fields that Options.Nulls asks for: for all chosen
// columns, else for those that the row has.
func (p *parser) empty(c *chunk) error {
	first := len(c.fields)
	add := func(col *column) error {
		name, err := col.fieldName(extText)
		if err == nil && !slices.ContainsFunc(c.fields[first:], func(f writer.Field) bool { return f.Name == name }) {
			c.fields = append(c.fields, writer.Field{Name: name})
			p.teach(c, col, extText, name)
		}
		return err
	}
	if p.plan.opt.Nulls != source.NullsEmpty {
		return p.nothing()
	}
	for _, name := range p.plan.opt.Columns {
		if err := add(p.find(name)); err != nil {
			return err
		}
	}
	for _, col := range p.present {
		if p.plan.Columns == nil && col.field {
			if err := add(col); err != nil {
				return err
			}
		}
	}
	if len(c.fields) == first {
		return p.nothing()
	}
	return nil
}

// nothing returns the error of a row without chosen values.
func (p *parser) nothing() error {
	if p.plan.Columns == nil || len(p.present) == 0 {
		return source.ErrNulls
	}
	return fmt.Errorf("the row has no value in the columns %s: it has %s%w", strings.Join(p.plan.opt.Columns, ", "),
		p.names(), plain.Silent(source.ErrNulls))
}

// names lists the columns of the current row.
func (p *parser) names() string {
	var names []string
	for _, col := range p.present[:min(len(p.present), 10)] {
		names = append(names, quoted(col.name))
	}
	return strings.Join(names, ", ")
}

// field converts the value of a column to a field.
func (p *parser) field(c *chunk, col *column) error {
	ext, data := extensionOf[col.v.Kind], col.v.B
	switch col.v.Kind {
	case rows.Digits:
		if col.class {
			ext = extClass
		}
	case rows.Word:
		if col.class && digitsOnly(data) {
			ext = extClass
		}
	case rows.List:
		if p.array.read(data) {
			if p.array.size() > maxArray {
				return fmt.Errorf("%w: column %s: an array of %d bytes", format.ErrTooLarge, quoted(col.name),
					p.array.size())
			}
			begin := len(c.side)
			c.side = p.array.append(c.side)
			ext, data = extNumpy, c.side[begin:len(c.side):len(c.side)]
		}
	}
	name, err := col.fieldName(ext)
	if err != nil {
		return err
	}
	c.fields = append(c.fields, writer.Field{Name: name, Data: data})
	p.teach(c, col, ext, name)
	return nil
}

// csvRow parses the cells of a row.
func (p *parser) csvRow(c *chunk, b []byte) error {
	p.open(c.of)
	row := c.of.row(b)
	n, again := 0, p.headed
	for ; !row.over; n++ {
		cell, quoted, grown := row.next(c.side)
		c.side = grown
		if n >= len(p.cells) {
			continue
		}
		again = again && string(cell) == c.of.header[n]
		col := p.cells[n]
		col.row, col.v = p.row, rows.Cell{Kind: rows.Word, B: cell}
		if len(cell) == 0 && !quoted {
			col.v.Kind = rows.Null
		}
		p.present = append(p.present, col)
	}
	if n != len(p.cells) {
		if c.of.bare {
			return corruptf("it has %d cells, and the first row has %d: check its commas and quotes", n, len(p.cells))
		}
		return corruptf("it has %d cells, and the header names %d columns: check its commas and quotes", n,
			len(p.cells))
	}
	if again {
		return corruptf("it is the header once more, as where files were put together")
	}
	if !p.valid && !utf8.Valid(b) {
		return corruptf("it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	return nil
}

// textLine takes a line as a text.
func (p *parser) textLine(of *textFile, b []byte) error {
	if !p.valid && !utf8.Valid(b) {
		return corruptf("it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	p.open(of)
	b = trimEnd(b)
	col := p.cells[0]
	col.row, col.v = p.row, rows.Cell{Kind: rows.Text, B: b[:len(b):len(b)]}
	p.present = append(p.present, col)
	return nil
}

// teach adds a lesson for the last row unless an earlier row of the chunk has given it.
func (p *parser) teach(of *chunk, c *column, ext extension, name string) {
	if c.chunk != p.chunks {
		c.chunk, c.words = p.chunks, [len(extensions)]string{}
	}
	before := c.words[ext]
	if before == "txt" {
		return
	}
	word := wordOf(&c.v, ext)
	if before != "" {
		word = kinds.Wider(before, word)
	}
	if word == before {
		return
	}
	c.words[ext] = word
	of.lessons = append(of.lessons, lesson{len(of.rows) - 1, name, word})
}

// example parses a record: a tf.train.Example, or a SequenceExample, whose context is an Example.
func (p *parser) example(c *chunk, record []byte) error {
	body := record[recordHead : len(record)-recordTail]
	if maskedCRC(body) != binary.LittleEndian.Uint32(record[len(record)-recordTail:]) {
		return corruptf("it does not match its checksum")
	}
	return messages(body, func(num protowire.Number, typ protowire.Type, b []byte) error {
		if typ != protowire.BytesType {
			return errWire
		}
		what, parse := "feature", featureValue
		switch num {
		case 1:
		case 2:
			what, parse = "feature list", steps
		default:
			return errWire
		}
		return entries(b, func(name string, b []byte) error {
			v, err := parse(c, b)
			if err != nil {
				return fmt.Errorf("%s %s: %w", what, quoted(name), err)
			}
			return p.set(p.find(name), v)
		})
	})
}

// set sets the value of a column. A name such as image/encoded becomes a field image_encoded.
func (p *parser) set(col *column, v rows.Cell) error {
	if strings.IndexByte(col.base, '/') >= 0 {
		col.base = strings.ReplaceAll(col.base, "/", "_")
	}
	if col.row != p.row {
		if p.present = append(p.present, col); len(p.present) > maxColumns {
			return corruptf("it has more than %d features", maxColumns)
		}
	}
	col.row, col.v = p.row, v
	return nil
}
