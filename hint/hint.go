// Package hint adds to an error, as data, what its reader can do about it.
//
// This is the rule for the text of errors in all packages of this project:
//
//   - An error says what is wrong, and where: shard or file, offset, key, as far as they are known. The
//     place comes first, then a colon, then the fault; a second colon precedes what to do, in the
//     imperative, if words suffice for it.
//   - The text begins in lower case, unless with a name, and ends without a full stop. It does not begin
//     with the name of a Go package: a user of a program does not know it, and a Go program sees
//     the type.
//   - What to do that is spelled differently in Go, on a command line and in Python, an option or a
//     command, is no part of the text. It is a Hint of the error. Whoever prints the error spells it:
//     the command line as --block-size, Python as block_size=.
//   - Nobody reads or edits the text of an error. To tell errors apart there are errors.Is and
//     errors.As; to say more, wrap the error or add a Hint.
package hint

import (
	"errors"
	"slices"
)

// A Hint is one thing to do about an error: set an option, or run a command.
type Hint struct {
	// Option is the name of an option of the call that failed, in lower case with hyphens, as in
	// block-size. It is empty for a command.
	Option string `json:"option,omitempty"`
	// Value is what to set the option to. It is empty where the text of the error says what to give.
	Value string `json:"value,omitempty"`
	// Command is a command of the program shardtool with its arguments, as in prune --grace 0s.
	Command []string `json:"command,omitempty"`
	// Does says what follows, as in "adds to it". It is empty where that is clear.
	Does string `json:"does,omitempty"`
}

// Option returns the hint that another value of an option helps.
func Option(name string) Hint { return Hint{Option: name} }

// Set returns the hint that an option set to a value helps. does says what follows; it may be
// empty.
func Set(name, value, does string) Hint { return Hint{Option: name, Value: value, Does: does} }

// Command returns the hint that a command of the program shardtool helps. does says what follows.
func Command(does string, words ...string) Hint { return Hint{Command: words, Does: does} }

// hinted is an error with hints.
type hinted struct {
	error
	hints []Hint
}

func (e *hinted) Unwrap() error { return e.error }
func (e *hinted) Hints() []Hint { return e.hints }

// New returns an error with a text and hints. Each call returns a distinct error, as errors.New.
func New(text string, hints ...Hint) error { return &hinted{errors.New(text), hints} }

// With returns err with hints. The text is the text of err. It returns nil if err is nil.
func With(err error, hints ...Hint) error {
	if err == nil || len(hints) == 0 {
		return err
	}
	return &hinted{err, hints}
}

// Of returns the hints of err and of all errors that it wraps, the outermost first, each once. An
// error of another type has hints if it has a method Hints() []Hint.
func Of(err error) []Hint {
	var found []Hint
	var walk func(err error)
	walk = func(err error) {
		if e, ok := err.(interface{ Hints() []Hint }); ok {
			for _, h := range e.Hints() {
				if !slices.ContainsFunc(found, h.equal) {
					found = append(found, h)
				}
			}
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				walk(inner)
			}
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	if err != nil {
		walk(err)
	}
	return found
}

func (h Hint) equal(x Hint) bool {
	return h.Option == x.Option && h.Value == x.Value && h.Does == x.Does && slices.Equal(h.Command, x.Command)
}
