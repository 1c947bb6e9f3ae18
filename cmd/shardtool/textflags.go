package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	rowlines "github.com/shardtool/shardtool/writer/source/lines"
)

// textFlags say how text files are read.
type textFlags struct {
	opt    rowlines.Options // of these flags alone
	header string
	bare   bool
	quote  string
}

func (f *textFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.opt.Delimiter, "delimiter", "",
		"CSV: separator of cells, such as ';' (default: a comma, in .tsv a tab)")
	fl.StringVar(&f.header, "header", "auto",
		"CSV: whether the first line names the columns: yes, no, or auto, which is yes and refuses a line that looks like data")
	fl.BoolVar(&f.bare, "no-header", false,
		"CSV: short for --header no: the columns are column1, column2 and so on, or what --columns-are says")
	fl.StringVar(&f.quote, "quote", "double",
		"CSV: double, a cell that begins with a quote ends with one; or none, quotes are text and each line is a row")
	fl.BoolVar(&f.opt.AllowNaN, "allow-nan", false, "JSON: read NaN, Infinity and -Infinity, as Python writes them")
	fl.StringSliceVar(&f.opt.ColumnsAre, "columns-are", nil,
		"CSV: the names of the columns of files without a header, in order, as a,b")
}

// options parses the flags.
func (f *textFlags) options() error {
	headers := map[string]rowlines.Header{"auto": rowlines.HeaderAuto, "yes": rowlines.HeaderYes,
		"no": rowlines.HeaderNo}
	var ok bool
	if f.opt.Header, ok = headers[cmp.Or(f.header, "auto")]; !ok {
		return usagef("--header %q: use auto, yes or no", f.header)
	}
	if f.quote != "" && f.quote != "double" && f.quote != "none" {
		return usagef("--quote %q: use double or none", f.quote)
	}
	f.opt.Unquoted = f.quote == "none"
	if f.bare && f.opt.Header == rowlines.HeaderYes {
		return usagef("--no-header is --header no, and --header yes says the opposite: leave one out")
	}
	if f.bare {
		f.opt.Header = rowlines.HeaderNo
	}
	return nil
}

// provenance records the options in the metadata of the data set.
func (f *textFlags) provenance(to map[string]string) {
	if f.opt.Delimiter != "" {
		to["delimiter"] = f.opt.Delimiter
	}
	if f.opt.Unquoted {
		to["quote"] = f.quote
	}
	if f.opt.AllowNaN {
		to["allow_nan"] = "true"
	}
	switch {
	case len(f.opt.ColumnsAre) > 0:
		to["columns_are"] = strings.Join(f.opt.ColumnsAre, ",")
	case f.bare || f.header == "no":
		to["header"] = "no"
	}
}
