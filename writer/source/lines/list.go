package lines

import "bytes"

// jsonList stands in place of the separator of cells for files that are one JSON list. Its elements
// are the rows.
const jsonList = 0xfe

// listState is where a cutter is in a list.
type listState int

const (
	listBefore listState = iota
	listFirst            // after the opening bracket
	listNext             // after an element
	listOver             // after the closing bracket
)

func count(b []byte) int64 { return int64(bytes.Count(b, newline)) }

// elementEnd returns the length of the value at the beginning of b, by its brackets and quotes
// alone, or of all of b where it does not end. A number ends before a comma, a bracket or a space.
func elementEnd(b []byte, eof bool) (n int, whole bool) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; ; i++ {
				k := bytes.IndexAny(b[min(i, len(b)):], "\"\\")
				if k < 0 {
					return len(b), false
				}
				if i += k; b[i] == '"' {
					break
				}
				i++ // what the backslash escapes
			}
			if depth == 0 {
				return i + 1, true
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, true
			}
			if depth--; depth == 0 {
				return i + 1, true
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i, true
			}
		}
	}
	return len(b), eof && depth == 0 && len(b) > 0
}
