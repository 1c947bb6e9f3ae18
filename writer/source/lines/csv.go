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

// rowState is the result of scanning a CSV row.
type rowState uint8

const (
	rowWhole  rowState = iota
	rowCut             // its end is not in the buffer
	rowOpen            // a quote is not closed before the end of the file
	rowQuoted          // text follows a closing quote in the same cell
)

// scanRow finds the end of the CSV row that begins at b[0], including the line end. A cell that
// begins with a quote must end with one, and doubles quotes inside it; in other cells a quote is an
// ordinary character. eof means that b ends with the file. at is the beginning of the last quoted
// cell. For a bad row, end is the number of bytes scanned.
func scanRow(b []byte, comma byte, eof bool) (end, at int, state rowState) {
	i := 0
	short := func(state rowState) (int, int, rowState) {
		if eof {
			return len(b), at, state
		}
		return 0, 0, rowCut
	}
	for {
		if i < len(b) && b[i] == '"' {
			at = i
			for i++; ; i++ {
				k := bytes.IndexByte(b[i:], '"')
				if k < 0 {
					return short(rowOpen)
				}
				if i += k + 1; i == len(b) {
					return short(rowWhole)
				}
				if b[i] != '"' {
					break
				}
			}
			switch {
			case b[i] == comma:
				i++
				continue
			case b[i] == '\n':
				return i + 1, 0, rowWhole
			case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
				return i + 2, 0, rowWhole
			case b[i] == '\r' && i+1 == len(b):
				return short(rowWhole)
			}
			return i, at, rowQuoted
		}
		for i < len(b) && b[i] != comma && b[i] != '\n' {
			i++
		}
		if i == len(b) {
			return short(rowWhole)
		}
		if i++; b[i-1] == '\n' {
			return i, 0, rowWhole
		}
	}
}

// lineEnd returns the length of the first line of b, including its end, or 0 if the end is missing.
func lineEnd(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }

// trimEnd removes the line end.
func trimEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}
