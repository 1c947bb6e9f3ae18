package format

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/internal/plain"
)

// Errors a caller branches on; they come wrapped, mostly in a *PosError. Truncated input wraps io.ErrUnexpectedEOF as well
// as ErrCorrupt.
var (
	// ErrCorrupt: the bytes are not what a writer put there.
	ErrCorrupt = errors.New("corrupt data")
	// ErrVersion: a newer format, or a critical part this version does not know.
	ErrVersion = errors.New("unsupported format version")
	// ErrTooLarge: a length above a limit of the format or of the options.
	ErrTooLarge = errors.New("too large")
	// ErrMismatch: two parts that are whole in themselves do not belong together.
	ErrMismatch = errors.New("parts do not belong together")
	// ErrName: a key or field that cannot be stored and read back as it is.
	ErrName = errors.New("invalid sample name")
	// ErrDuplicate: a key or field that is there already.
	ErrDuplicate = errors.New("duplicate")
)

// PosError says where an error is. Fields that are not known are empty or negative, see [At].
type PosError struct {
	// Shard is the object's name.
	Shard string
	// Block is the block's number in its shard, or -1.
	Block int
	// Offset is a byte offset in the object, or -1.
	Offset int64
	// Key is the sample's key.
	Key string
	// Err is what is wrong there.
	Err error
}

// At wraps err with an offset in an object whose name the caller will add; nil stays nil. An error that has a position
// already keeps its own.
func At(offset int64, err error) error { return Position(err, "", -1, offset, "") }

// Position adds what is known of a place to err and fills in only what an inner position lacks. nil stays nil.
func Position(err error, shard string, block int, offset int64, key string) error {
	if err == nil {
		return nil
	}
	p := &PosError{Shard: shard, Block: block, Offset: offset, Key: key, Err: err}
	var in *PosError
	if errors.As(err, &in) {
		p = &PosError{Shard: in.Shard, Block: in.Block, Offset: in.Offset, Key: in.Key, Err: in.Err}
		if p.Shard == "" {
			p.Shard = shard
		}
		if p.Block < 0 {
			p.Block = block
		}
		if p.Offset < 0 {
			p.Offset = offset
		}
		if p.Key == "" {
			p.Key = key
		}
	}
	return p
}

// Error reads "shard x.tar.zst: block 17 at 8192: sample "k": checksum mismatch", leaving out what is not known.
func (e *PosError) Error() string {
	var b strings.Builder
	if e.Shard != "" {
		fmt.Fprintf(&b, "shard %s: ", plain.Text(e.Shard))
	}
	switch {
	case e.Block >= 0 && e.Offset >= 0:
		fmt.Fprintf(&b, "block %d at %d: ", e.Block, e.Offset)
	case e.Block >= 0:
		fmt.Fprintf(&b, "block %d: ", e.Block)
	case e.Offset >= 0:
		fmt.Fprintf(&b, "at %d: ", e.Offset)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "sample %q: ", e.Key)
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap gives what is wrong there.
func (e *PosError) Unwrap() error { return e.Err }

// corruptf is an ErrCorrupt with its reason; more %w verbs may add a second cause.
func corruptf(msg string, args ...any) error {
	return fmt.Errorf("%w: "+msg, append([]any{ErrCorrupt}, args...)...)
}
