package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// TestSystemRemedy: an error of a file says what to do, once.
func TestSystemRemedy(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EMFILE: "; raise the limit on open files (ulimit -n)",
		syscall.ENOSPC: "; free some space or write elsewhere, then run again",
		syscall.EACCES: "; check the owner and the mode of the file and its directory",
		syscall.EIO:    "",
	} {
		file := fmt.Errorf("listing: %w", &fs.PathError{Op: "open", Path: "x", Err: errno})
		if got := remedy(file); got != want {
			t.Errorf("%v: %q, want %q", errno, got, want)
		}
		stored := &objstore.Error{Op: "get", Name: "x", Store: "y", Err: &fs.PathError{Op: "open", Path: "x", Err: errno}}
		if got := stored.Error() + remedy(stored); want != "" && strings.Count(got, want) != 1 {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if got := remedy(&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}); got != "" {
		t.Errorf("a missing file: %q", got)
	}
}

// TestHints: a hint names the flag that sets the option, and the text of the error stays as it is.
func TestHints(t *testing.T) {
	key := "a: order: 5 reader: serve: --columns"
	for want, err := range map[string]error{
		key + " (--run-blocks, --lanes)": &order.OptionError{Options: []string{"run-blocks", "lanes"}, Err: errors.New(key)},
		"rows.csv: " + key + ": no length; --on-error skip leaves such samples out and lists them": fmt.Errorf("rows.csv: %s: %w", key, writer.ErrLength),
		"there is a data set already; --append adds to it, --overwrite replaces it":                writer.ErrExists,
		"leftovers of another pack; `shardtool prune --grace 0s` deletes young ones, too":          writer.ErrSource,
		"rows.csv: --pad-id 5: " + key:    optionError(hint.At("rows.csv", &hint.OptionError{Option: "pad", Value: "5", Err: errors.New(key)})),
		"--block-size 1KiB: " + key:       optionError(&hint.OptionError{Option: "block-size", Value: "1024", Err: errors.New(key)}),
		"block_size=1024: " + key:         argumentError(&hint.OptionError{Option: "block-size", Value: "1024", Err: errors.New(key)}),
		key + " (--change-mix)":           hint.With(errors.New(key), hint.Set("change-mix", "true", "")),
		key + "; " + key + " (--columns)": errors.Join(errors.New(key), hint.With(errors.New(key), hint.Option("columns"))),
	} {
		var out strings.Builder
		report(&out, err)
		if got := strings.TrimSuffix(out.String(), "\n"); got != "shardtool: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
