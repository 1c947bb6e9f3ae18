package lines

import (
	"bytes"
	"unicode/utf8"
)

// cells iterates over the cells of a CSV row that scanRow has checked.
type cells struct {
	b     []byte // without line end
	comma byte
	over  bool
}

// next returns the next cell without quotes. It unescapes doubled quotes to the end of side, which
// grows.
func (r *cells) next(side []byte) (cell []byte, quoted bool, grown []byte) {
	if len(r.b) == 0 || r.b[0] != '"' {
		end := bytes.IndexByte(r.b, r.comma)
		if end < 0 {
			r.over = true
			return r.b, false, side
		}
		cell, r.b = r.b[:end:end], r.b[end+1:]
		return cell, false, side
	}
	b := r.b[1:]
	begin := len(side)
	for {
		k := bytes.IndexByte(b, '"')
		if k+1 < len(b) && b[k+1] == '"' {
			side = append(side, b[:k+1]...)
			b = b[k+2:]
			continue
		}
		cell = b[:k:k]
		if len(side) > begin {
			side = append(side, cell...)
			cell = side[begin:len(side):len(side)]
		}
		if b = b[k+1:]; len(b) == 0 {
			r.over = true
		} else {
			r.b = b[1:] // after the comma
		}
		return cell, true, side
	}
}

// csvRow parses the cells of a row.
func (p *parser) csvRow(c *chunk, b []byte) error {
	if p.file != c.of {
		p.file, p.cells = c.of, p.cells[:0]
		for _, name := range c.of.header {
			p.cells = append(p.cells, p.find(name))
		}
	}
	row := cells{b: trimEnd(b), comma: c.of.comma}
	n := 0
	for ; !row.over; n++ {
		cell, quoted, grown := row.next(c.side)
		c.side = grown
		if n >= len(p.cells) {
			continue
		}
		col := p.cells[n]
		col.row, col.v = p.row, value{kind: kindCell, b: cell}
		if len(cell) == 0 && !quoted {
			col.v.kind = kindNull
		}
		p.present = append(p.present, col)
	}
	if n != len(p.cells) {
		return corruptf("it has %d cells, and the header names %d columns: check its commas and quotes", n, len(p.cells))
	}
	if !p.valid && !utf8.Valid(b) {
		return corruptf("it is not UTF-8: convert the file, such as with `iconv -f latin1 -t utf-8`")
	}
	return nil
}
