package parquet

import (
	"fmt"
	"log/slog"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// ErrPageMemory means that a page decodes to more bytes than Options.PageMemory.
var ErrPageMemory = hint.With(fmt.Errorf("%w for the memory of a page: write the file again with smaller pages, or allow more", format.ErrTooLarge),
	hint.Option("memory"))

func (o *Options) choice() rows.Choice {
	return rows.Choice{Key: o.Key, Columns: o.Columns, Rename: o.Rename, Attrs: o.Attrs, Where: o.Where, Nulls: o.Nulls}
}

// Options selects the rows and columns that become samples. The zero value takes all columns of all
// rows.
type Options struct {
	// Key names the column of keys: strings, or integers, which are written in decimal. It becomes
	// a field only if Columns names it. If Key is empty, a key is the file's name without .parquet,
	// a slash, and the row's number in nine digits; as many folders precede the name as it takes to
	// tell files apart.
	Key string
	// Columns lists the columns that become fields. Nil selects all. Other columns are read only if
	// Key, Attrs or Where names them.
	Columns []string
	// Rename maps columns to other field names: {"image": "jpg"}.
	Rename map[string]string
	// Attrs maps attributes to the columns of their values. Integers and booleans become integer
	// attributes, floats numbers, strings labels; columns that Hugging Face marks as class labels
	// become labels with the class names. A null value is omitted.
	Attrs map[string]string
	// Where keeps the rows for which all of these expressions hold, such as "col >= 3",
	// "lang in (de, fr) or lang is null", "not (a = 1 and b between 2 and 5)". A comparison with
	// null does not hold, nor does its opposite.
	Where []string
	// Nulls selects what happens to a row in which every column that becomes a field is null.
	Nulls source.Nulls `json:",omitempty"`
	// Arrays has columns of numbers and truth values become arrays without a dimension, .npy files,
	// rather than text. Class labels stay text.
	Arrays bool `json:",omitempty"`
	// Widen has a column that is of integers in some files and of floats in others be read as floats
	// of 64 bits, also in lists. An integer that is none is an error of its row.
	Widen bool `json:",omitempty"`
	// Log is told once that a map has a key twice. Nil: nothing is.
	Log *slog.Logger `json:"-"`
	// PageMemory is the maximum decoded size of a page in bytes. The default is 256 MiB. Pages of
	// up to 64 MiB, and pages that decode to at most 32 times their stored size, are always read.
	// Each column holds one page.
	PageMemory int64 `json:"-"`
}
