package lines

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/stream"
)

// ErrOption is wrapped by errors in Options: a column that the files lack, a filter that cannot be read.
var ErrOption = errors.New("option")

func optionf(msg string, args ...any) error {
	return fmt.Errorf("%w %w", ErrOption, fmt.Errorf(msg, args...))
}

// Options say which rows become samples and how. The zero value takes all members, or columns, of all rows.
type Options struct {
	// Key names the member or column of keys: strings, or integers as they are written. It becomes a field only where Columns
	// names it. Without one, keys are the file's name without its extension, a slash, and the number of the row from 0 in nine
	// digits; as many folders come before the name as tell files apart. Rows are the lines of JSON Lines, and the rows of CSV
	// that are not empty.
	Key string
	// Columns are the members or columns that become fields, nil for all.
	Columns []string
	// Rename gives them another name in fields: {"caption": "txt"}.
	Rename map[string]string
	// Attrs are attributes and the columns of their values. What the first rows have says of which kind an attribute is: integers
	// and truth values make integers, other numbers numbers, all else labels. Null is no value.
	Attrs map[string]string
	// Where keeps rows for which all of these hold: "col=value", "col!=value", "col<n", "<=", ">", ">=", "col is null",
	// "col is not null". A comparison with null does not hold.
	Where []string
	// Nulls says what becomes of a row in which all members or columns that become fields are null or
	// missing.
	Nulls source.Nulls `json:",omitempty"`
	// Delimiter divides cells, default a comma in .csv and a tab in .tsv. JSON Lines have none.
	Delimiter string
	// MaxLine is the most bytes that a row may have, default 1 GiB. Longer ones are errors.
	MaxLine int64
	// Workers is how many goroutines parse, default GOMAXPROCS.
	Workers int `json:"-"`

	chunk int // bytes of a chunk, default chunkSize
}

const (
	defaultMaxLine = 1 << 30
	// maxColumns is the most members or columns of a row.
	maxColumns = 1 << 16
	// maxNamed bounds what a goroutine remembers of names of members.
	maxNamed = 4096
)

func (o Options) filled() (Options, error) {
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.chunk == 0 {
		o.chunk = chunkSize
	}
	if o.MaxLine < 0 || o.Workers < 0 {
		return o, optionf("lines of %d bytes and %d workers: give positive numbers", o.MaxLine, o.Workers)
	}
	if d := o.Delimiter; len(d) > 1 || d != "" && (d[0] >= 0x80 || strings.Contains("\"\r\n", d)) {
		return o, optionf("delimiter %q: give one character of ASCII, such as ; or |, that is no quote and no line end", d)
	}
	for i, name := range o.Columns {
		if slices.Contains(o.Columns[:i], name) {
			return o, optionf("columns: %q is there twice", name)
		}
	}
	for from, to := range o.Rename {
		if to == "" {
			return o, optionf("rename: column %q gets an empty name", from)
		}
		if o.Columns != nil && !slices.Contains(o.Columns, from) || o.Columns == nil && from == o.Key && from != "" {
			return o, optionf("rename: column %q becomes no field", from)
		}
	}
	return o, nil
}

// suffixes are those of files that are read, and what divides cells: 0 for JSON Lines.
var suffixes = []struct {
	text  string
	comma byte
}{{".jsonl", 0}, {".ndjson", 0}, {".csv", ','}, {".tsv", '\t'}}

// Is says whether a file has the name of one that New reads: it ends in .jsonl, .ndjson, .csv or .tsv, and behind that perhaps in
// .gz or .zst, in letters of either case.
func Is(name string) bool {
	_, _, _, ok := kindOf(name)
	return ok
}

// kindOf goes by a file's name; suffix is all of it that says what the file is.
func kindOf(name string) (comma byte, coding stream.Coding, suffix string, ok bool) {
	rest, coding := stream.CutSuffix(name)
	for _, s := range suffixes {
		if n := len(rest) - len(s.text); n > 0 && strings.EqualFold(rest[n:], s.text) {
			return s.comma, coding, name[n:], true
		}
	}
	return 0, coding, "", false
}

// stems gives files the beginnings of their keys. Files that differ by extension alone keep theirs.
func setStems(files []inputs.File) error {
	var endings []string
	for _, in := range files {
		_, _, suffix, ok := kindOf(in.Path)
		if !ok {
			if _, _, suffix, ok = kindOf(in.Name); !ok {
				return optionf("inputs: %s: give files that end in .jsonl, .ndjson, .csv or .tsv, and behind that perhaps in .gz or .zst", in.Path)
			}
		}
		if !slices.Contains(endings, suffix) {
			endings = append(endings, suffix)
		}
	}
	slices.SortFunc(endings, func(a, b string) int { return len(b) - len(a) })
	err := inputs.SetStems(files, endings...)
	if err != nil {
		err = inputs.SetStems(files)
	}
	if err != nil {
		return optionf("inputs: %w", err)
	}
	return nil
}
