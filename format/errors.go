package format

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/internal/sys/plain"
)

// Errors a caller branches on. They are wrapped, mostly in a *PosError. Truncated input wraps
// io.ErrUnexpectedEOF as well as ErrCorrupt.
var (
	// ErrCorrupt: the bytes are not those that a writer put there.
	ErrCorrupt = errors.New("corrupt data")
	// ErrVersion: a newer format, or a critical part that this version does not know.
	ErrVersion = errors.New("unsupported format version")
	// ErrTooLarge: a length exceeds a limit of the format or of the options.
	ErrTooLarge = errors.New("too large")
	// ErrMismatch: two parts are whole in themselves and do not belong together.
	ErrMismatch = errors.New("parts do not belong together")
	// ErrName: a key or field name cannot be stored and read back unchanged.
	ErrName = errors.New("invalid sample name")
	// ErrDuplicate: a key or field exists already.
	ErrDuplicate = errors.New("duplicate")
)

// Place is a place in a data set.
type Place struct {
	// Shard is the object's name, empty where it is not known.
	Shard string
	// Block is the block's number in its shard, or -1.
	Block int
	// Offset is a byte offset in the object, or -1.
	Offset int64
	// Key is the sample's key, empty where it is not known.
	Key string
}

// PosError is an error at a place.
type PosError struct {
	Place
	Err error
}

// Wrap returns err as a *PosError at p, or nil if err is nil. Where err wraps a *PosError already,
// what that one knows of the place is kept and p supplies the rest.
func (p Place) Wrap(err error) error {
	if err == nil {
		return nil
	}
	var in *PosError
	if !errors.As(err, &in) {
		return &PosError{p, err}
	}
	out := *in
	if out.Shard == "" {
		out.Shard = p.Shard
	}
	if out.Block < 0 {
		out.Block = p.Block
	}
	if out.Offset < 0 {
		out.Offset = p.Offset
	}
	if out.Key == "" {
		out.Key = p.Key
	}
	return &out
}

// InShard is [Place.Wrap] with the name of the shard alone.
func InShard(name string, err error) error {
	return Place{Shard: name, Block: -1, Offset: -1}.Wrap(err)
}

// At is [Place.Wrap] with an offset alone, in an object whose name the caller will add.
func At(offset int64, err error) error { return Place{Block: -1, Offset: offset}.Wrap(err) }

// Error reads "shard x.tar.zst: block 17 at 8192: sample "k": checksum mismatch", without the parts
// that are not known.
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

// Unwrap returns Err.
func (e *PosError) Unwrap() error { return e.Err }
