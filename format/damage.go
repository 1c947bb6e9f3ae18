package format

import "fmt"

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// corruptf returns an ErrCorrupt with its reason; %w verbs may add a second cause.
func corruptf(msg string, args ...any) error {
	return fmt.Errorf("%w: "+msg, append([]any{ErrCorrupt}, args...)...)
}

func inSample(key string, err error) error { return Place{Block: -1, Offset: -1, Key: key}.Wrap(err) }
