package lines

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
)

// syntaxError describes an error in a row. at is the offset of its byte, or -1. It is small because
// many rows may be bad.
type syntaxError struct {
	what string
	at   int
	nan  bool // Options.AllowNaN reads it
}

// Hints says what reads the row.
func (e *syntaxError) Hints() []hint.Hint {
	if !e.nan {
		return nil
	}
	return []hint.Hint{hint.Set("allow-nan", "true", "reads them")}
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

func bad(at int, msg string, args ...any) *syntaxError {
	if len(args) > 0 {
		msg = fmt.Sprintf(msg, args...)
	}
	return &syntaxError{what: msg, at: at}
}
