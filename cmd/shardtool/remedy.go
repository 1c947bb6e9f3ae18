package main

import (
	"errors"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// remedy names the flags that avoid an error of the library, which knows none; empty if there are
// none.
func remedy(err error) string {
	switch {
	case errors.Is(err, reader.ErrViewGeneration):
		return ": see `shardtool select --carry`"
	case errors.Is(err, writer.ErrExists):
		return ": use --overwrite or --append"
	case errors.Is(err, writer.ErrDuplicateKey):
		return ", or use --duplicate-keys keep"
	}
	return ""
}
