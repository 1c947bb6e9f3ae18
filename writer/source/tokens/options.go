package tokens

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/writer"
)

// ErrRange is wrapped by the error of a token id that the type of the samples cannot hold.
var ErrRange = hint.New("token id out of range", hint.Hint{Option: "dtype", Does: "sets the type"})

// ErrField is wrapped by the error of a document that holds several fields of tokens, when
// JoinOptions.From names none.
var ErrField = hint.New("choose the field of tokens", hint.Hint{Option: "from", Does: "names it"})

// Remainder selects what happens to the last tokens if they are too few for a sample.
type Remainder uint8

const (
	// Keep makes a last, shorter sample of them: no token is lost.
	Keep Remainder = iota
	// Pad fills up that sample. Its attribute "tokens" is the number of real tokens.
	Pad
	// Drop drops them.
	Drop
)

var remainderNames = [...]string{"keep", "pad", "drop"}

func (r Remainder) String() string { return remainderNames[r] }

// ParseRemainder parses keep, pad or drop.
func ParseRemainder(name string) (Remainder, error) {
	if i := slices.Index(remainderNames[:], name); i >= 0 {
		return Remainder(i), nil
	}
	return 0, fmt.Errorf("remainder %q: use keep, pad or drop", name)
}

// RealTokens is the attribute of padded samples with the number of their real tokens.
const RealTokens = "tokens"

// Field is the field of tokens.
const Field = "tokens.npy"

// maxLength is the maximum length of a sample in tokens. It keeps sums within 63 bits.
const maxLength = 1 << 40

// Options configures how arrays become samples. The zero value makes each one-dimensional array one
// sample, and each row of all other arrays.
type Options struct {
	// Length cuts one-dimensional arrays into samples of this many tokens; each array has a
	// separate remainder. If it is set, rows of other arrays must have this length.
	Length int64
	// Remainder applies to the end of one-dimensional arrays.
	Remainder Remainder
	// PadID is the id with which Pad fills up.
	PadID int64
	// DType is the type of the ids in samples. The default is the type of the arrays, which must
	// then agree.
	DType DType
	// Mixed allows arrays of different types: each sample has the type of its array, and Join
	// converts it. DType must be 0.
	Mixed bool
	// Raw is the type of the ids in files whose names do not end in .npy, which hold nothing but
	// little-endian ids. If it is not set, such files are an error, except for files of llm.c,
	// whose header states the type.
	Raw DType
	// Rows has every row of arrays of any type become a sample, with its shape: there are no tokens,
	// and the options above are not set. The field is called as the first file is, or in .npz files
	// as the members are.
	Rows bool
	// Columns selects fields of rows, nil all of them, and Rename gives some another name. Both name a
	// field with .npy or without.
	Columns []string
	Rename  map[string]string
}

func (o Options) filled() (Options, error) {
	var err error
	switch {
	case o.Rows && (o.Length != 0 || o.DType != 0 || o.Remainder != Keep || o.Raw != 0):
		err = writer.Optionf("rows", "a length, a remainder or a type is for token ids")
	case !o.Rows && (o.Columns != nil || o.Rename != nil):
		err = writer.Optionf("columns", "they go with rows")
	case o.Columns != nil && len(o.Columns) == 0:
		err = writer.Optionf("columns", "none is named: name some, or leave the option out to take all")
	case o.Length < 0 || o.Length > maxLength:
		err = writer.Optionf("length", "%d tokens: give 1 to %d", o.Length, int64(maxLength))
	case o.Remainder > Drop || !o.DType.valid() || !o.Raw.valid():
		err = writer.Optionf("remainder", "%d, or the type %d or %d, is none of this package's constants", o.Remainder,
			o.DType, o.Raw)
	case o.Mixed && (o.DType != 0 || o.Remainder == Pad):
		err = writer.Optionf("mixed", "a type, or an id to pad with, requires samples of one type")
	case o.Remainder != Keep && o.Length == 0:
		err = writer.Optionf("remainder", "%v makes sense only with a length", o.Remainder)
	case o.Remainder == Pad && o.DType != 0 && !o.DType.fits(o.PadID):
		err = writer.Optionf("pad", "id %d does not fit into %v", o.PadID, o.DType)
	}
	return o, err
}

// JoinOptions configures how documents are joined.
type JoinOptions struct {
	// Length is the length of samples in tokens: 1 to MaxJoinLength.
	Length int64
	// Separator is appended to each document. It is usually one id, the end of a text, or nil for
	// no separator.
	Separator []int64
	// From is the field of a document's tokens: "input_ids.npy", or "input_ids", which also matches
	// "input_ids.json". If From is empty, it is the only array, or else the only JSON field.
	From string
	// DType is the type of the ids in samples, default Int32.
	DType DType
	// Remainder applies to the end of the last document, in each part of a split source.
	Remainder Remainder
	// PadID is the id with which Pad fills up.
	PadID int64
	// Dropped, if not nil, is called at the end with the number of tokens that Drop drops.
	Dropped func(tokens int64)
}

// MaxJoinLength is the maximum length of a joined sample in tokens, because it is assembled in
// memory.
const MaxJoinLength = 1 << 24

func (o JoinOptions) filled() (JoinOptions, error) {
	o.DType = cmp.Or(o.DType, Int32)
	switch {
	case o.Length < 1 || o.Length > MaxJoinLength:
		return o, writer.Optionf("length", "%d tokens: give 1 to %d", o.Length, MaxJoinLength)
	case len(o.Separator) > 1<<10:
		return o, writer.Optionf("separator", "%d ids: give at most %d", len(o.Separator), 1<<10)
	case o.Remainder > Drop || !o.DType.valid():
		return o, writer.Optionf("remainder", "%d, or the type %d, is none of this package's constants", o.Remainder,
			o.DType)
	case o.Remainder == Pad && !o.DType.fits(o.PadID):
		return o, writer.Optionf("pad", "id %d does not fit into %v", o.PadID, o.DType)
	}
	for _, id := range o.Separator {
		if !o.DType.fits(id) {
			return o, writer.Optionf("separator", "id %d does not fit into %v", id, o.DType)
		}
	}
	return o, nil
}
