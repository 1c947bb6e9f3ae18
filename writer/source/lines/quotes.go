package lines

import "bytes"

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
