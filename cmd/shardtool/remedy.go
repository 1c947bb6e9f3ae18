package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/views"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// advice is what to do about errors of the library, which knows no flags.
type advice []struct {
	of   error
	text string
}

// about returns the text for an error, empty if there is none.
func (a advice) about(err error) string {
	for _, known := range a {
		if errors.Is(err, known.of) {
			return known.text
		}
	}
	return ""
}

var remedies = advice{
	{views.ErrGeneration, ": see `shardtool select --carry`"},
	{writer.ErrExists, ": --append adds to it, --overwrite replaces it"},
	{writer.ErrSource, ": `shardtool prune --grace 0s` deletes young ones, too"},
	{writer.ErrLayout, " (--layout samples, or auto)"},
	{writer.ErrDuplicateKey, ", or use --duplicate-keys keep"},
	{writer.ErrMissingRow, " by --missing allow"},
	{writer.ErrUnknownKey, "; --key COLUMN names the column with the keys of samples, --unknown skip leaves such rows out"},
}

// remedy names the flags that avoid an error of the library; empty if there are none.
func remedy(err error) string {
	var option *order.OptionError
	var mismatch *mix.MismatchError
	switch {
	case errors.As(err, &option):
		return " (--" + strings.Join(option.Options, ", --") + ")"
	case errors.As(err, &mismatch) && !mismatch.Frozen:
		return " (--change-mix)"
	case strings.Contains(err.Error(), "or allow large blocks"):
		return " with --large-blocks"
	}
	if text := remedies.about(err); text != "" {
		return text
	}
	var stored *objstore.Error // has its advice
	var file *fs.PathError
	if hint := objstore.Advice(err); hint != "" && errors.As(err, &file) && !errors.As(err, &stored) {
		return "; " + hint
	}
	return ""
}

// nullsHelp is the advice for rows without a value.
const nullsHelp = "--nulls empty keeps such rows, with fields of no bytes, --nulls skip leaves them out"

// rowAdvice is for errors of rows where they end a pack; doctor goes on after most of them.
var rowAdvice = advice{
	{source.ErrNulls, "; " + nullsHelp},
	{parquet.ErrPageMemory, "; give more with --memory, or write the file again with smaller pages"},
	{tokens.ErrRange, "; set the type with --token-dtype"},
	{writer.ErrLength, "; --on-error skip leaves such samples out and lists them"},
	{tokens.ErrField, "; name it with --tokens-field"},
}

// rowError adds the flag that helps to an error of a row.
func rowError(err error) error { return fmt.Errorf("%w%s", err, rowAdvice.about(err)) }
