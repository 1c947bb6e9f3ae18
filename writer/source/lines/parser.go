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
	"github.com/shardtool/shardtool/writer"
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
				p.begin(c)
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
	c.keys = string(c.Keys)
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
		p.begin(c)
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

// begin prepares for the next row of a chunk.
func (p *parser) begin(c *chunk) {
	p.forget()
	p.into = c
	p.Next(&c.of.File)
}

// finish adds the current row to the chunk, unless a condition leaves it out.
func (p *parser) finish(c *chunk, at, after place, err error) {
	ok, first := false, len(c.Fields)
	if err == nil {
		ok, err = p.Take(at.row, &c.Samples)
		slices.SortFunc(c.Fields[first:], func(a, b writer.Field) int { return strings.Compare(a.Name, b.Name) })
	}
	if !ok && err == nil {
		c.dropped++
		return
	}
	c.add(at.line, after, err)
}

// AddFields adds the value as a field.
func (c *column) AddFields(to *rows.Samples) error {
	ext, data := extensionOf[c.Cell.Kind], c.Cell.B
	switch c.Cell.Kind {
	case rows.Digits:
		if c.class {
			ext = extClass
		}
	case rows.Word:
		if c.class && digitsOnly(data) {
			ext = extClass
		}
	case rows.List:
		if array := &c.of.array; array.read(data) {
			if array.size() > maxArray {
				return fmt.Errorf("%w: column %s: an array of %d bytes", format.ErrTooLarge, quoted(c.Name), array.size())
			}
			begin := len(to.Data)
			to.Data = array.append(to.Data)
			ext, data = extNumpy, to.Since(begin)
		}
	}
	name, err := c.fieldName(ext)
	if err != nil {
		return err
	}
	c.teach(ext, name)
	return to.Add(name, data)
}

// Empty returns the name of an empty field.
func (c *column) Empty() (string, error) {
	name, err := c.fieldName(extText)
	if err == nil {
		c.teach(extText, name)
	}
	return name, err
}

// csvRow parses the cells of a row.
func (p *parser) csvRow(c *chunk, b []byte) error {
	p.open(c.of)
	row := c.of.row(b)
	n, again := 0, p.headed
	for ; !row.over; n++ {
		cell, quoted, grown := row.next(c.Data)
		c.Data = grown
		if n >= len(p.cells) {
			continue
		}
		again = again && string(cell) == c.of.header[n]
		col := p.cells[n]
		v := &col.Cell
		if v.Kind, v.B = rows.Word, cell; len(cell) == 0 && !quoted {
			v.Kind = rows.Null
		}
		p.Has = append(p.Has, &col.Column)
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
	col.Cell = rows.Cell{Kind: rows.Text, B: b[:len(b):len(b)]}
	p.Has = append(p.Has, &col.Column)
	return nil
}

// teach adds a lesson for the current row unless an earlier row of the chunk has given it.
func (c *column) teach(ext extension, name string) {
	if c.chunk != c.of.chunks {
		c.chunk, c.words = c.of.chunks, [len(extensions)]string{}
	}
	before := c.words[ext]
	if before == "txt" {
		return
	}
	word := wordOf(&c.Cell, ext)
	if before != "" {
		word = kinds.Wider(before, word)
	}
	if word == before {
		return
	}
	c.words[ext] = word
	to := c.of.into
	to.lessons = append(to.lessons, lesson{len(to.rows), name, word})
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
	if strings.IndexByte(col.Base, '/') >= 0 {
		col.Base = strings.ReplaceAll(col.Base, "/", "_")
	}
	if col.Cell.Kind == rows.Absent {
		if p.Has = append(p.Has, &col.Column); len(p.Has) > maxColumns {
			return corruptf("it has more than %d features", maxColumns)
		}
	}
	col.Cell = v
	return nil
}
