package writer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/codec"
)

// ErrOptions is what the errors of options that cannot be are, such as a column that the files
// lack. Each is a *hint.OptionError.
var ErrOptions = hint.ErrOption

// Optionf returns an ErrOptions without a value: name is the option, in lower case with hyphens.
func Optionf(name, msg string, args ...any) error { return hint.Optionf(name, msg, args...) }

// optionError is an ErrOptions with the value that cannot be; reason says what to give.
func optionError(name, value, reason string) error {
	return &hint.OptionError{Option: name, Value: value, Err: errors.New(reason)}
}

// Check returns the error that New would return for the options alone, before anything is read.
func (o Options) Check() error {
	_, err := o.filled()
	return err
}

// check finds the first value that is not valid, in options with their defaults.
func (o *Options) check() error {
	bad := func(option string, value any, reason string) error {
		return optionError(option, fmt.Sprint(value), reason)
	}
	switch {
	case o.BlockSize < 4<<10 || o.BlockSize > format.MaxFrame:
		return bad("block-size", o.BlockSize, "give 4KiB to 16MiB")
	case o.ShardSize < o.BlockSize:
		return bad("shard-size", o.ShardSize, fmt.Sprintf("give at least the block size, %d", o.BlockSize))
	case o.SamplesPerShard < 0:
		return bad("samples-per-shard", o.SamplesPerShard, "give a number of samples, or 0 for no limit")
	case o.Workers < 0:
		return bad("workers", o.Workers, "give a number, or 0 for one a processor")
	case o.Memory < 0:
		return bad("memory", o.Memory, "give a number of bytes")
	case o.Faults.MaxSkipped < 0:
		return bad("max-skipped", o.Faults.MaxSkipped, "give a number of samples")
	case o.Level < codec.LevelDefault || o.Level > codec.LevelBest:
		return bad("level", int(o.Level), "use LevelDefault, LevelFastest, LevelBetter or LevelBest")
	case o.Mode < ModeCreate || o.Mode > ModeAppend:
		return bad("mode", int(o.Mode), "use a constant of package writer")
	case o.Layout < LayoutSamples || o.Layout > LayoutOfSource:
		return bad("layout", int(o.Layout), "use a constant of package writer")
	case !(o.Faults.MaxSkippedShare >= 0 && o.Faults.MaxSkippedShare <= 1): // NaN too
		return bad("max-skipped", o.Faults.MaxSkippedShare, "give a share between 0 and 1")
	}
	return cmp.Or(checkLengths(o.Lengths), CheckName(o.Name))
}

// CheckName returns the error of a Name that cannot be: it is one plain path element that no tool
// misreads.
func CheckName(name string) error {
	ok := name != "" && len(name) <= 200 && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "-") &&
		name != "manifest" && name != "keys"
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return optionError("name", strconv.Quote(name),
			"use up to 200 letters, digits, '.', '_' and '-', not a dot or dash first, nor manifest or keys")
	}
	return nil
}

// checkLengths checks Options.Lengths.
func checkLengths(lengths map[string]string) error {
	for attr, field := range lengths {
		if attr == "" {
			return fmt.Errorf("the length of field %q is given for an attribute without a name", field)
		}
		if err := format.CheckField(field); err != nil {
			return fmt.Errorf("attribute %q: %w", attr, err)
		}
		if field != "npy" && !strings.HasSuffix(field, ".npy") {
			return fmt.Errorf("attribute %q: field %q does not end in .npy: only arrays have a length, as in input_ids.npy", attr, field)
		}
	}
	return nil
}

// filled returns the options with their defaults, or the first value that is not valid.
func (o Options) filled() (Options, error) {
	o.BlockSize, o.ShardSize = cmp.Or(o.BlockSize, DefaultBlockSize), cmp.Or(o.ShardSize, 256<<20)
	o.Workers, o.Memory = cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), cmp.Or(o.Memory, 256<<20)
	o.Name = cmp.Or(o.Name, "data")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o, o.check()
}
