package parquet

import (
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source"
)

// ErrOption is wrapped by errors in Options: a column that no file has, a filter that cannot be read.
var ErrOption = errors.New("option")

// ErrPageMemory: a page decodes to more bytes than Options.PageMemory.
var ErrPageMemory = fmt.Errorf("%w for the memory of a page", format.ErrTooLarge)

func optionf(msg string, args ...any) error {
	return fmt.Errorf("%w %w", ErrOption, fmt.Errorf(msg, args...))
}

// Options say which rows become samples and how. The zero value takes all columns of all rows.
type Options struct {
	// Key names the column of keys: strings, or integers, which are written in decimal. It becomes a field only where Columns
	// names it. Without one, keys are the file's name without .parquet, a slash, and the number of the row in nine digits; as
	// many folders come before the name as tell files apart.
	Key string
	// Columns are the columns that become fields, nil for all. Others are not read, unless Key, Attrs or Where wants them.
	Columns []string
	// Rename gives columns another name in fields: {"image": "jpg"}.
	Rename map[string]string
	// Attrs are attributes and the columns of their values: integers and truth values become integer attributes, floats numbers,
	// strings labels, and columns of class labels as Hugging Face marks them labels, by name. Null is no value.
	Attrs map[string]string
	// Where keeps rows for which all of these hold: "col=value", "col!=value", "col<n", "<=", ">", ">=", "col is null",
	// "col is not null". A comparison with null does not hold.
	Where []string
	// Nulls says what becomes of a row in which all columns that become fields are null.
	Nulls source.Nulls `json:",omitempty"`
	// PageMemory is the most bytes that one page may decode to, default 256 MiB; pages of up to 64
	// MiB, and those that decode to at most 32 times what is stored of them, are read in any case. Of
	// each column one page is held.
	PageMemory int64 `json:"-"`
}
