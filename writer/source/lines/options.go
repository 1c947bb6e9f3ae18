package lines

import (
	"cmp"
	"errors"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// Options selects the rows and columns that become samples. The zero value takes all members, or
// columns, of all rows.
type Options struct {
	// Key names the member or column of keys: strings, or integers as written. It becomes a field
	// only if Columns names it. If Key is empty, a key is the file's name without extension, a
	// slash, and the row's number, from 0, in nine digits; as many folders precede the name as it
	// takes to tell files apart. Rows are the lines of JSON Lines, and the rows of CSV that are not
	// empty.
	Key string
	// Columns lists the members or columns that become fields. Nil selects all.
	Columns []string
	// Rename maps columns to other field names: {"caption": "txt"}.
	Rename map[string]string
	// Attrs maps attributes to the columns of their values. The first rows decide the kind of an
	// attribute: integers and booleans make it an integer, other numbers a number, everything else
	// a label. A null value is omitted.
	Attrs map[string]string
	// Where keeps the rows for which all of these expressions hold, such as "col >= 3",
	// "lang in (de, fr) or lang is null", "not (a = 1 and b between 2 and 5)". A comparison with
	// null does not hold, nor does its opposite.
	Where []string
	// Nulls selects what happens to a row in which every member or column that becomes a field is
	// null or missing.
	Nulls source.Nulls `json:",omitempty"`
	// Delimiter separates cells. The default is a comma in .csv and a tab in .tsv. JSON Lines have
	// none.
	Delimiter string
	// Header says whether the first row of a CSV file names its columns.
	Header Header `json:",omitempty"`
	// ColumnsAre names the columns of CSV files, which then have no header. If it is nil, the columns
	// of a file without a header are column1, column2 and so on.
	ColumnsAre []string `json:",omitempty"`
	// Unquoted has quotes in cells of CSV be text. A row is then a line.
	Unquoted bool `json:",omitempty"`
	// AllowNaN reads NaN, Infinity and -Infinity as numbers of JSON, as Python writes them.
	AllowNaN bool `json:",omitempty"`
	// TextLines makes a sample of each line of all files, whatever their names, empty lines included.
	// Its only column is txt.
	TextLines bool `json:",omitempty"`
	// MaxLine is the maximum length of a row in bytes. The default is 1 GiB. A longer row is an
	// error.
	MaxLine int64
	// Workers is the number of goroutines that parse. The default is GOMAXPROCS.
	Workers int `json:"-"`

	chunk int // size of a chunk, default chunkSize
}

// Header says whether the first row of CSV names the columns.
type Header int

// The values of Header.
const (
	// HeaderAuto: it does. A first row that looks like values is refused: all of its cells are
	// numbers, and one of them is negative or a fraction. Years are a header.
	HeaderAuto Header = iota
	HeaderYes         // it does, whatever it looks like
	HeaderNo          // it is a sample
)

const (
	defaultMaxLine = 1 << 30
	// maxColumns is the maximum number of members or columns of a row.
	maxColumns = 1 << 16
	// maxNamed bounds the member names that a parser caches.
	maxNamed = 4096
)

func (o Options) filled() (Options, error) {
	o.MaxLine, o.chunk = cmp.Or(o.MaxLine, defaultMaxLine), cmp.Or(o.chunk, chunkSize)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if o.MaxLine < 0 || o.Workers < 0 {
		return o, writer.Optionf("workers", "%d, and lines of %d bytes: give positive numbers", o.Workers, o.MaxLine)
	}
	if d := o.Delimiter; len(d) > 1 || d != "" && (d[0] >= 0x80 || strings.Contains("\"\r\n", d)) {
		return o, &hint.OptionError{Option: "delimiter", Value: strconv.Quote(d),
			Err: errors.New("give one character of ASCII, such as ; or |, that is no quote and no line end")}
	}
	if o.ColumnsAre != nil {
		if o.Header == HeaderYes {
			return o, writer.Optionf("columns-are", "they name the columns of files without a header")
		}
		o.Header = HeaderNo
	}
	for i, name := range o.ColumnsAre {
		if slices.Contains(o.ColumnsAre[:i], name) {
			return o, writer.Optionf("columns-are", "%q is there twice", name)
		}
	}
	choice := o.choice()
	return o, choice.Check()
}

func (o *Options) choice() rows.Choice {
	return rows.Choice{Key: o.Key, Columns: o.Columns, Rename: o.Rename, Attrs: o.Attrs, Where: o.Where, Nulls: o.Nulls}
}

// suffixes lists the extensions of supported files and the separator of their cells, 0 for JSON
// Lines.
var suffixes = []struct {
	text  string
	comma byte
}{{".jsonl", 0}, {".ndjson", 0}, {".json", jsonList}, {".csv", ','}, {".tsv", '\t'}, {".mds", mdsShard},
	{".tfrecord", tfRecord}, {".tfrecords", tfRecord}}

// kindOf returns the kind of a file by its name. suffix is the whole extension.
func kindOf(name string) (comma byte, coding stream.Coding, suffix string, ok bool) {
	rest, coding := stream.CutSuffix(name)
	for _, s := range suffixes {
		if n := len(rest) - len(s.text); n > 0 && strings.EqualFold(rest[n:], s.text) {
			return s.comma, coding, name[n:], true
		}
	}
	return 0, coding, "", false
}

// kindOfInput returns the kind of a file by its As, else by its path, else by its name.
func (o *Options) kindOfInput(f *inputs.File) (comma byte, coding stream.Coding, suffix string, ok bool) {
	if o.TextLines {
		rest, coding := stream.CutSuffix(f.Path)
		suffix = f.Path[len(rest)-len(path.Ext(rest)):]
		if f.As != "" {
			_, coding = stream.CutSuffix("rows" + f.As)
		}
		return textLine, coding, suffix, true
	}
	if f.As != "" {
		return kindOf("rows" + f.As)
	}
	if comma, coding, suffix, ok = kindOf(f.Path); !ok {
		comma, coding, suffix, ok = kindOf(f.Name)
	}
	return comma, coding, suffix, ok
}

// setStems sets the Stem of files. Files that differ only in their extension keep it.
func (o *Options) setStems(files []inputs.File) error {
	var endings []string
	for _, in := range files {
		_, _, suffix, ok := o.kindOfInput(&in)
		if !ok {
			return writer.Optionf("inputs",
				"%s: give files that end in .jsonl, .ndjson, .json, .csv, .tsv, .tfrecord or .mds, optionally followed by .gz, .zst, .bz2, .xz or .lz4", in.Path)
		}
		if _, _, own, ok := kindOf(in.Path); in.As != "" && ok && !o.TextLines {
			suffix = own
		}
		if !slices.Contains(endings, suffix) {
			endings = append(endings, suffix)
		}
	}
	slices.SortFunc(endings, func(a, b string) int { return len(b) - len(a) })
	if err := inputs.SetStemsApart(files, endings...); err != nil {
		return writer.Optionf("inputs", "%w", err)
	}
	return nil
}
