// Package damage makes the errors of input that no writer makes, for the packages of the format.
package damage

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// AllZero reports whether b has zeros only, as padding must.
func AllZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Errorf returns an ErrCorrupt with its reason; %w verbs may add a second cause.
func Errorf(msg string, args ...any) error {
	return fmt.Errorf("%w: "+msg, append([]any{format.ErrCorrupt}, args...)...)
}

// InSample is [format.Place.Wrap] with the key of a sample alone.
func InSample(key string, err error) error {
	return format.Place{Block: -1, Offset: -1, Key: key}.Wrap(err)
}
