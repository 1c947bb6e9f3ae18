package main

import (
	"errors"
	"strings"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/views"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// remedy names the flags that avoid an error of the library, which knows none; empty if there are
// none.
func remedy(err error) string {
	var option *order.OptionError
	var mismatch *mix.MismatchError
	switch {
	case errors.As(err, &option):
		return " (--" + strings.Join(option.Options, ", --") + ")"
	case errors.As(err, &mismatch) && !mismatch.Frozen:
		return " (--change-mix)"
	case errors.Is(err, views.ErrGeneration):
		return ": see `shardtool select --carry`"
	case errors.Is(err, writer.ErrExists):
		return ": --append adds to it, --overwrite replaces it"
	case errors.Is(err, writer.ErrSource):
		return ": `shardtool prune --grace 0s` deletes young ones, too"
	case errors.Is(err, writer.ErrLayout):
		return " (--layout samples, or auto)"
	case errors.Is(err, writer.ErrDuplicateKey):
		return ", or use --duplicate-keys keep"
	}
	return ""
}
