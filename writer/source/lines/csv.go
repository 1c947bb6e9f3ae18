package lines

import (
	"bytes"

	"github.com/shardtool/shardtool/hint"
)

// cells iterates over the cells of a CSV row that scanRow has checked.
type cells struct {
	b     []byte // without line end
	comma byte
	plain bool // quotes are text
	over  bool
}

// next returns the next cell without quotes. It unescapes doubled quotes to the end of side, which
// grows.
func (r *cells) next(side []byte) (cell []byte, quoted bool, grown []byte) {
	if len(r.b) == 0 || r.b[0] != '"' || r.plain {
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
	return bytes.TrimSuffix(bytes.TrimSuffix(b, newline), []byte("\r"))
}

var newline = []byte{'\n'}

// unquote is corruptf with the option that reads quotes as text.
func unquote(msg string, args ...any) error {
	return hint.With(corruptf(msg, args...), hint.Set("quote", "none", "has quotes be text"))
}

// quoteError explains wrong quotes in a row. b begins with the row. The cell that begins at open is
// closed before end.
func quoteError(b []byte, open, end int, line int64, state rowState) error {
	opened := line + int64(bytes.Count(b[:open], newline))
	if state == rowOpen {
		return unquote("the quote that opens a cell in line %d is not closed in the rest of the file; a cell that begins with a quote ends with one, and has quotes doubled inside", opened)
	}
	closed := line + int64(bytes.Count(b[:end], newline))
	return unquote("the quote that opens a cell in line %d is closed in line %d, and the cell continues after it; quotes inside cells are doubled", opened, closed)
}
