package lines

import (
	"bytes"
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// syntaxError is what is wrong with a row, and where: at is its byte from 0, or -1. Rows may be many and bad, so it is small.
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

// Unwrap gives format.ErrCorrupt.
func (e *syntaxError) Unwrap() error { return format.ErrCorrupt }

func corruptf(msg string, args ...any) error {
	return &syntaxError{what: fmt.Sprintf(msg, args...), at: -1}
}

func tooLongError(limit int) error {
	return fmt.Errorf("%w: it takes more than %d bytes", format.ErrTooLarge, limit)
}

// quoteError says where a row's quotes go wrong. b begins with the row, a cell opens at open, and is closed before end.
func quoteError(b []byte, open, end int, line int64, state rowState) error {
	opened := line + int64(bytes.Count(b[:open], newline))
	if state == rowOpen {
		return corruptf("the quote that opens a cell in line %d is not closed in the rest of the file; a cell that begins with a quote ends with one, and has quotes doubled inside", opened)
	}
	closed := line + int64(bytes.Count(b[:end], newline))
	return corruptf("the quote that opens a cell in line %d is closed in line %d, and the cell goes on behind it; quotes inside cells are doubled", opened, closed)
}
