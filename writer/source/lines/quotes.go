package lines

import "bytes"

// rowState is what was found of a row of CSV.
type rowState uint8

const (
	rowWhole  rowState = iota
	rowCut             // more bytes are needed to see its end
	rowOpen            // a quote is not closed before the end of the file
	rowQuoted          // something stands between a closing quote and the end of the cell
)

// scanRow finds the end of the row of CSV that begins at b[0], line end included. A cell that begins with a quote ends with one,
// and has quotes doubled inside; in other cells a quote is a character like others. eof says that nothing comes behind b. at is
// where the last cell in quotes begins; of a bad row end is how far it was read.
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

// lineEnd is the length of the first line of b, its end included; 0 when the end is not there.
func lineEnd(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }

// trimEnd takes the line end off.
func trimEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}
