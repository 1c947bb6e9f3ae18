package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/writer/source"
)

// rowFlags are those flags of rows whose text is parsed.
type rowFlags struct {
	rename, attrs, files []string
	text                 textFlags
	nulls                string
	lengths              map[string]string // attributes from fields of arrays
}

func (f *rowFlags) add(cmd *cobra.Command, to *ingest.Rows) {
	fl := cmd.Flags()
	fl.StringVar(&to.Key, "key", "",
		"rows: the column of keys, strings or integers (default: file name and row number)")
	fl.StringSliceVar(&to.Columns, "columns", nil, "rows: take only these columns; data sets: these fields; as a,b")
	fl.StringArrayVar(&f.rename, "rename", nil,
		"rows: rename the field of a column, data sets: a field, as column=name (may be repeated)")
	fl.StringArrayVar(&f.attrs, "attr", nil,
		"keep in the index a column of rows, as attribute=column, or how many elements arrays have, as tokens=len(input_ids.npy) (may be repeated)")
	fl.StringArrayVar(&to.Where, "where", nil,
		"rows: take the rows for which this holds, data sets: samples by attribute, as 'width >= 256 and lang in (de, fr)' (all, if repeated)")
	fl.StringVar(&f.nulls, "nulls", "fail",
		"rows: a row whose columns are all null: fail, empty (its fields have no bytes) or skip it and count it")
	fl.BoolVar(&to.Widen, "widen", false,
		"Parquet, Arrow: read a column of integers in some files and of floats in others as floats")
	f.text.add(cmd)
	fl.StringArrayVar(&f.files, "file-column", nil,
		"rows: read the files whose paths a column has, as FIELD=COLUMN: image=file_name gives image.jpg (may be repeated)")
	fl.StringVar(&to.FileRoot, "file-root", "",
		"rows: the folder, or address, of the files of --file-column (default: the folder of the file of rows)")
	titled(cmd, "Rows and attributes")
}

// options parses the flags.
func (f *rowFlags) options(to *ingest.Rows) error {
	pairs := func(flag, want string, list []string) (map[string]string, error) {
		var out map[string]string
		for _, text := range list {
			a, b, ok := strings.Cut(text, "=")
			if _, twice := out[a]; twice {
				return nil, usagef("--%s %q: %q is given twice: leave one out", flag, text, a)
			}
			if ok && flag == "rename" && strings.ContainsAny(b, ",=") {
				return nil, usagef("--%s %q: write --rename once for each column, as --rename text=caption --rename cls=label", flag, text)
			}
			if !ok || a == "" && flag != "rename" || b == "" {
				return nil, usagef("--%s %q: write %s", flag, text, want)
			}
			if out == nil {
				out = map[string]string{}
			}
			out[a] = b
		}
		return out, nil
	}
	var ok bool
	if to.Nulls, ok = map[string]source.Nulls{"fail": source.NullsFail, "empty": source.NullsEmpty,
		"skip": source.NullsSkip}[f.nulls]; !ok {
		return usagef("--nulls %q: use fail, empty or skip", f.nulls)
	}
	var err error
	if to.Rename, err = pairs("rename", "column=name", f.rename); err != nil {
		return err
	}
	if to.Attrs, err = pairs("attr", "NAME=COLUMN or NAME=len(FIELD), as in width=w", f.attrs); err != nil {
		return err
	}
	to.Files = nil
	for _, text := range f.files {
		field, column, ok := strings.Cut(text, "=")
		if !ok {
			return usagef("--file-column %q: write FIELD=COLUMN, such as image=file_name, each field once", text)
		}
		to.Files = append(to.Files, ingest.FileColumn{Field: field, Column: column})
	}
	if err := f.text.options(); err != nil {
		return err
	}
	text := &f.text.opt
	to.Delimiter, to.Header, to.ColumnsAre, to.Unquoted, to.AllowNaN = text.Delimiter, text.Header, text.ColumnsAre,
		text.Unquoted, text.AllowNaN
	return f.cutLengths(to.Attrs)
}

// cutLengths moves the attributes that are lengths of arrays to lengths.
func (f *rowFlags) cutLengths(attrs map[string]string) error {
	for attr, of := range attrs {
		field, ok := lengthOf(of)
		if !ok {
			continue
		}
		if field != "npy" && !strings.HasSuffix(field, ".npy") {
			return usagef("--attr %s=%s: name a field of arrays by its whole name, as in len(input_ids.npy)", attr, of)
		}
		if f.lengths == nil {
			f.lengths = map[string]string{}
		}
		f.lengths[attr] = field
		delete(attrs, attr)
	}
	return nil
}

// lengthOf returns the field in len(FIELD).
func lengthOf(text string) (field string, ok bool) {
	if field, ok = strings.CutPrefix(text, "len("); ok {
		field, ok = strings.CutSuffix(field, ")")
	}
	return field, ok
}

// provenance records the options in the metadata of the data set.
func (f *rowFlags) provenance(of *ingest.Rows, to map[string]string) {
	list := func(name string, values []string) {
		if len(values) > 0 {
			to[name] = fmt.Sprintf("%q", values)
		}
	}
	if of.Key != "" {
		to["key"] = of.Key
	}
	if of.Widen {
		to["widen"] = "true"
	}
	f.text.provenance(to)
	if f.nulls != "fail" {
		to["nulls"] = f.nulls
	}
	list("columns", of.Columns)
	list("rename", slices.Sorted(slices.Values(f.rename)))
	// the writer records lengths
	list("attr", slices.DeleteFunc(slices.Sorted(slices.Values(f.attrs)), func(text string) bool {
		_, of, _ := strings.Cut(text, "=")
		_, is := lengthOf(of)
		return is
	}))
	list("where", of.Where)
	if len(f.files) > 0 {
		to["file_column"] = fmt.Sprintf("%q", f.files)
	}
	if place, _, _ := strings.Cut(of.FileRoot, "?"); place != "" { // its options may be secret
		to["file_root"] = place
	}
}
