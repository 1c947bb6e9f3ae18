package hint

import (
	"errors"
	"fmt"
)

// ErrOption is what an *OptionError is, for errors.Is.
var ErrOption = errors.New("option")

// OptionError is an option that cannot be used as it is. Its text names the option, so whoever
// prints it for others than Go programmers calls Text with their name of the option.
type OptionError struct {
	Place  string // the file or line that the option does not fit; may be empty
	Option string // in lower case with hyphens, as in block-size
	Value  string // what was given; may be empty
	Err    error  // what is wrong, and what to give
}

// Optionf returns an *OptionError without a place and a value.
func Optionf(option, msg string, args ...any) *OptionError {
	return &OptionError{Option: option, Err: fmt.Errorf(msg, args...)}
}

// Text is the text of the error where the option has this name: "rows.csv: --key: there is no
// column".
func (e *OptionError) Text(name string) string {
	text := name
	if e.Place != "" {
		text = e.Place + ": " + text
	}
	if e.Value != "" {
		text += " " + e.Value
	}
	return text + ": " + e.Err.Error()
}

// Error is the text for Go programmers.
func (e *OptionError) Error() string { return e.Text("option " + e.Option) }

// Is makes errors.Is(err, ErrOption) true.
func (e *OptionError) Is(target error) bool { return target == ErrOption }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

// At adds the place to an error. The text of an *OptionError begins with it, whatever the option is
// called.
func At(place string, err error) error {
	if bad, ok := err.(*OptionError); ok {
		placed := *bad
		if placed.Place = place; bad.Place != "" {
			placed.Place = place + ": " + bad.Place
		}
		return &placed
	}
	return fmt.Errorf("%s: %w", place, err)
}
