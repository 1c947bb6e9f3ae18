package main

import (
	"errors"

	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/writer"
)

// remedy names the flags that avoid an error of the library, which knows none; empty if there are
// none.
func remedy(err error) string {
	var mix *mix.MismatchError
	switch {
	case errors.As(err, &mix) && !mix.Frozen:
		return " (--change-mix)"
	case errors.Is(err, writer.ErrExists):
		return ": use --overwrite or --append"
	case errors.Is(err, writer.ErrDuplicateKey):
		return ", or use --duplicate-keys keep"
	}
	return ""
}
