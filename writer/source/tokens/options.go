package tokens

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/format"
)

// ErrOption is wrapped by errors in options: a length that is none, a separator that does not fit.
var ErrOption = errors.New("option")

// ErrRange is wrapped by the error of a token id that the type of the samples cannot hold.
var ErrRange = errors.New("token id out of range")

// ErrField is wrapped by the error of a document that holds several fields of tokens, when
// JoinOptions.From names none.
var ErrField = errors.New("choose the field of tokens")

func optionf(msg string, args ...any) error {
	return fmt.Errorf("%w %w", ErrOption, fmt.Errorf(msg, args...))
}

// Remainder says what becomes of the tokens at the end that are too few for a sample.
type Remainder uint8

const (
	// Keep makes a last, shorter sample of them: no token is lost.
	Keep Remainder = iota
	// Pad fills that sample up. Its attribute "tokens" says how many of its tokens are real.
	Pad
	// Drop leaves them out.
	Drop
)

var remainderNames = [...]string{"keep", "pad", "drop"}

func (r Remainder) String() string { return remainderNames[r] }

// ParseRemainder reads keep, pad or drop.
func ParseRemainder(name string) (Remainder, error) {
	for i, n := range remainderNames {
		if n == name {
			return Remainder(i), nil
		}
	}
	return 0, fmt.Errorf("remainder %q: use keep, pad or drop", name)
}

// RealTokens is the attribute of samples that were padded: how many of their tokens are real.
const RealTokens = "tokens"

// DefaultField is the field that tokens get.
const DefaultField = "tokens.npy"

// maxLength is the longest sample, in tokens. It keeps sums inside 63 bits.
const maxLength = 1 << 40

// Options say how arrays become samples. The zero value makes each one-dimensional array one sample, and each row of all others.
type Options struct {
	// Length cuts one-dimensional arrays into samples of so many tokens; each array has a remainder of its own. Rows of other arrays
	// must have this length where it is given.
	Length int64
	// Remainder is for the end of one-dimensional arrays.
	Remainder Remainder
	// PadID is the id that Remainder Pad fills up with.
	PadID int64
	// Field is the samples' field, default DefaultField.
	Field string
	// DType is the type of the ids in samples, by default that of the arrays, which must all have the same then.
	DType DType
	// Mixed lets them differ: samples have the type of their array then, for Join to convert. DType is 0 with it.
	Mixed bool
	// Raw is the type of ids in files whose names do not end in .npy: nothing but ids, little-endian. Without it such files are
	// refused, but for those of llm.c, whose header says it.
	Raw DType
}

func (o Options) filled() (Options, error) {
	if o.Field == "" {
		o.Field = DefaultField
	}
	err := checkField(o.Field)
	switch {
	case err != nil:
	case o.Length < 0 || o.Length > maxLength:
		err = optionf("length: %d tokens: give 1 to %d", o.Length, int64(maxLength))
	case o.Remainder > Drop || !o.DType.valid() || !o.Raw.valid():
		err = optionf("remainder %d or type %d, %d is none of this package's constants", o.Remainder, o.DType, o.Raw)
	case o.Mixed && (o.DType != 0 || o.Remainder == Pad):
		err = optionf("mixed: one type, or an id to pad with, needs samples that are of one")
	case o.Remainder != Keep && o.Length == 0:
		err = optionf("remainder: %v makes sense only with a length", o.Remainder)
	case o.Remainder == Pad && o.DType != 0 && !o.DType.fits(o.PadID):
		err = optionf("pad: id %d does not fit into %v", o.PadID, o.DType)
	}
	return o, err
}

// checkField wants names that NumPy's readers know by.
func checkField(name string) error {
	if err := format.CheckField(name); err != nil {
		return optionf("field: %w", err)
	}
	if name != "npy" && !strings.HasSuffix(name, ".npy") {
		return optionf("field: %q does not end in .npy, which is how readers know arrays", name)
	}
	return nil
}

// JoinOptions say how documents are joined.
type JoinOptions struct {
	// Length of samples in tokens: 1 to MaxJoinLength.
	Length int64
	// Separator is what stands behind each document, most often one id, that of the end of a text; nil for nothing.
	Separator []int64
	// From is the field of a document that has its tokens: "input_ids.npy", or "input_ids" for that or "input_ids.json". Empty
	// takes the only field of arrays, or else the only one of JSON.
	From string
	// DType is the type of the ids in samples, default Int32.
	DType DType
	// Remainder is for the end of the last document, of each part where the source is split.
	Remainder Remainder
	// PadID is the id that Remainder Pad fills up with.
	PadID int64
	// NoMap leaves documents.json out.
	NoMap bool
}

// MaxJoinLength is the most tokens of a sample that documents are joined into: it is made in memory.
const MaxJoinLength = 1 << 24

func (o JoinOptions) filled() (JoinOptions, error) {
	if o.DType == 0 {
		o.DType = Int32
	}
	switch {
	case o.Length < 1 || o.Length > MaxJoinLength:
		return o, optionf("length: %d tokens: give 1 to %d", o.Length, MaxJoinLength)
	case len(o.Separator) > 1<<10:
		return o, optionf("separator: %d ids: give at most %d", len(o.Separator), 1<<10)
	case o.Remainder > Drop || !o.DType.valid():
		return o, optionf("remainder %d or type %d is none of this package's constants", o.Remainder, o.DType)
	case o.Remainder == Pad && !o.DType.fits(o.PadID):
		return o, optionf("pad: id %d does not fit into %v", o.PadID, o.DType)
	}
	for _, id := range o.Separator {
		if !o.DType.fits(id) {
			return o, optionf("separator: id %d does not fit into %v", id, o.DType)
		}
	}
	return o, nil
}
