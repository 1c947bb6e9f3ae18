package lines

import (
	"bytes"
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// syntaxError describes an error in a row. at is the offset of its byte, or -1. It is small because
// many rows may be bad.
type syntaxError struct {
	what string
	at   int
}

func (e *syntaxError) Error() string {
	if e.at < 0 {
		return fmt.Sprintf("%v: %s", format.ErrCorrupt, e.what)
	}
	return fmt.Sprintf("%v: at byte %d of the line: %s", format.ErrCorrupt, e.at+1, e.what)
}

// Unwrap returns format.ErrCorrupt.
func (e *syntaxError) Unwrap() error { return format.ErrCorrupt }

func corruptf(msg string, args ...any) error {
	return &syntaxError{what: fmt.Sprintf(msg, args...), at: -1}
}

func tooLongError(limit int) error {
	return fmt.Errorf("%w: it is longer than %d bytes", format.ErrTooLarge, limit)
}

// quoteError explains wrong quotes in a row. b begins with the row. The cell that begins at open is
// closed before end.
func quoteError(b []byte, open, end int, line int64, state rowState) error {
	opened := line + int64(bytes.Count(b[:open], newline))
	if state == rowOpen {
		return corruptf("the quote that opens a cell in line %d is not closed in the rest of the file; a cell that begins with a quote ends with one, and has quotes doubled inside", opened)
	}
	closed := line + int64(bytes.Count(b[:end], newline))
	return corruptf("the quote that opens a cell in line %d is closed in line %d, and the cell continues after it; quotes inside cells are doubled", opened, closed)
}
