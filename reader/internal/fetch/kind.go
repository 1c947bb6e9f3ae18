package fetch

import (
	"errors"

	"github.com/shardtool/shardtool/format"
)

// The kinds of faults that reading a block finds. Package check documents them.
const (
	KindMissing   = "missing"
	KindTruncated = "truncated"
	KindSize      = "size"
	KindChecksum  = "checksum"
	KindDecode    = "decode"
)

// KindError is an error that knows which kind of fault it is.
type KindError struct {
	Kind string
	Err  error
}

func (e *KindError) Error() string { return e.Err.Error() }
func (e *KindError) Unwrap() error { return e.Err }

// OfKind marks an error as a kind of fault. Where the error has a position, the mark goes inside of
// it, because format.Place drops what surrounds a position.
func OfKind(kind string, err error) error {
	var at *format.PosError
	if !errors.As(err, &at) {
		return &KindError{kind, err}
	}
	marked := *at
	marked.Err = &KindError{kind, at.Err}
	return &marked
}
