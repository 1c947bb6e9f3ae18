package order

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// ErrMismatch reports a checkpoint that does not belong to this order. Every *MismatchError is one.
var ErrMismatch = errors.New("the checkpoint does not fit")

// wholeSet stands for the view of a data set that is read as a whole.
const wholeSet = "the whole data set"

// MismatchError is a difference between a checkpoint and an order.
type MismatchError struct {
	Field      string // the member of the checkpoint
	Checkpoint string // its value there
	Given      string // the value asked for, or the value of the data set
}

// Error names the field, both values and what to do.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the checkpoint does not fit: %s is %s in the checkpoint, %s here: %s",
		e.label(), e.Checkpoint, e.Given, e.advice())
}

// Is makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func (e *MismatchError) label() string {
	switch e.Field {
	case "V":
		return "V (lanes)"
	case "E":
		return "E (run blocks)"
	case "W":
		return "W (delay)"
	case "H":
		return "H (head)"
	case "T":
		return "T (mixing block)"
	case "N":
		return "N (samples)"
	}
	return e.Field
}

func (e *MismatchError) advice() string {
	switch e.Field {
	case "digest", "N":
		return "resume with the data set it was made with"
	case "view":
		return "resume with the view it was made with"
	}
	return "leave it to the checkpoint, or start anew without one"
}

// Compare returns a *MismatchError for the first parameter in which a checkpoint's parameters
// differ from those asked for, nil when all agree. To check only what a user gave, ask for the
// checkpoint's own with those changed.
func (p Params) Compare(asked Params) error {
	for _, f := range []struct {
		name       string
		have, want any
	}{
		{"seed", p.Seed, asked.Seed},
		{"shuffle", p.Shuffle, asked.Shuffle},
		{"V", p.Lanes, asked.Lanes},
		{"E", p.RunBlocks, asked.RunBlocks},
		{"W", p.Delay, asked.Delay},
		{"H", p.Head, asked.Head},
		{"T", p.MixBlock, asked.MixBlock},
		{"affinity", p.Affinity, asked.Affinity},
		{"tail", p.Tail, asked.Tail},
	} {
		if f.have != f.want {
			return &MismatchError{Field: f.name, Checkpoint: fmt.Sprint(f.have), Given: fmt.Sprint(f.want)}
		}
	}
	return nil
}

// Fits returns a *MismatchError when the checkpoint does not name a place in the order of the plan:
// another content of the data set, or another parameter. Batch size, world size and tables may
// differ. A checkpoint of units does not fit a plan of samples: see Fits of package units.
func (c *Checkpoint) Fits(p *Plan) error {
	if len(c.Sources) != 1 {
		return &MismatchError{Field: "sources", Checkpoint: fmt.Sprint(len(c.Sources)), Given: "1"}
	}
	s := c.Sources[0]
	if s.Digest != p.digest {
		was, view, _ := strings.Cut(s.Digest, "#")
		is, given, _ := strings.Cut(p.digest, "#")
		if was == is {
			return &MismatchError{Field: "view", Checkpoint: cmp.Or(view, wholeSet), Given: cmp.Or(given, wholeSet)}
		}
		return &MismatchError{Field: "digest", Checkpoint: s.Digest, Given: p.digest}
	}
	if s.Samples != p.total {
		return &MismatchError{Field: "N", Checkpoint: fmt.Sprint(s.Samples), Given: fmt.Sprint(p.total)}
	}
	if u := c.Units; u != nil {
		return &MismatchError{Field: "units", Checkpoint: fmt.Sprintf("%s of %d by %s", u.Kind, u.Size, u.By),
			Given: "none"}
	}
	return c.Params.Compare(p.params)
}
