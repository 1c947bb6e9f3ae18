package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/filecolumns"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	rowlines "github.com/shardtool/shardtool/writer/source/lines"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// Parquet files; Arrow files and streams; text files whose lines are rows; TFRecord files, whose
// records are; and shards of MosaicML Streaming, whose samples are.
var (
	parquetKind  = rowsKind(recognise.Parquet, openParquet)
	arrowKind    = rowsKind(recognise.Arrow, openParquet)
	linesKind    = rowsKind(recognise.Lines, openLines, textOnly...)
	textKind     = rowsKind(recognise.Text, openLines) // by --text-lines
	tfrecordKind = rowsKind(recognise.TFRecord, openLines)
	mdsKind      = rowsKind(recognise.MDS, openLines)
)

// rowsKind returns a kind of files whose rows are samples. more are its flags besides rowsOnly.
func rowsKind(of *recognise.Kind, open openSource, more ...string) kind {
	return kind{
		of:      of,
		flags:   append(more, rowsOnly...),
		instead: map[string]string{"": "--columns and --where choose, and reading shuffles"},
		open:    open,
	}
}

func openParquet(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	r := &f.rows
	one := "Parquet file"
	if found.kind.of == recognise.Arrow {
		one = "Arrow file"
		for i := range found.files { // whatever their names
			found.files[i].As = ".arrow"
		}
	}
	src, err := parquet.New(ctx, found.files, parquet.Options{Key: r.key, Columns: r.columns, Rename: r.renamed, Attrs: r.attributes, Where: r.where,
		Nulls: r.onNulls, Arrays: f.opt.Layout == writer.LayoutStacked, PageMemory: f.opt.Memory})
	if err != nil {
		return nil, 0, optionError(err)
	}
	f.evenLayout(src.Even)
	rows, size := src.Total()
	f.known(stderr, "%s in %s, %s of columns", plural(rows, "row"), plural(len(found.files), one), bytesText(uint64(size)))
	return opened(src, rows, plural(len(found.files), one))
}

func openLines(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	if len(found.files) == 0 { // an index names none
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, strings.Join(found.srcs, ", "))}
	}
	r := &f.rows
	opt := r.text.opt
	opt.TextLines = found.kind.of == recognise.Text
	opt.Key, opt.Columns, opt.Rename, opt.Attrs, opt.Where, opt.Nulls = r.key, r.columns, r.renamed, r.attributes, r.where, r.onNulls
	src, err := rowlines.New(ctx, found.files, opt)
	if err != nil {
		return nil, 0, optionError(err)
	}
	_, size := src.Total()
	text := plural(len(found.files), "file") + " of JSON Lines or CSV"
	switch found.kind.of {
	case recognise.Text:
		text = plural(len(found.files), "file") + " of lines of text"
	case recognise.TFRecord:
		text = plural(len(found.files), "TFRecord file")
	case recognise.MDS:
		text = plural(len(found.files), "MDS shard")
	}
	if size > 0 {
		text += ", " + bytesText(uint64(size))
	}
	f.known(stderr, "%s", text)
	return src, size, nil
}

// rowFlags determine how rows become samples, for all kinds of files of rows.
type rowFlags struct {
	key            string
	columns, where []string
	rename, attrs  []string // as given
	text           textFlags
	nulls          string
	renamed        map[string]string
	attributes     map[string]string // from columns
	lengths        map[string]string // from fields of arrays
	onNulls        source.Nulls
	files          fileColumnFlags
}

// rowsOnly are the names of the flags for all of these kinds.
var rowsOnly = []string{"key", "columns", "rename", "attr", "where", "nulls", "file-column", "file-root"}

func (f *rowFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.key, "key", "", "rows: the column of keys, strings or integers (default: file name and row number)")
	fl.StringSliceVar(&f.columns, "columns", nil, "rows: take only these columns; data sets: these fields; as a,b")
	fl.StringArrayVar(&f.rename, "rename", nil, "rows: rename the field of a column, data sets: a field, as column=name (may be repeated)")
	fl.StringArrayVar(&f.attrs, "attr", nil, "keep in the index a column of rows, as attribute=column, or how many elements arrays have, as tokens=len(input_ids.npy) (may be repeated)")
	fl.StringArrayVar(&f.where, "where", nil, "rows: take the rows for which this holds, data sets: samples by attribute, as 'width >= 256 and lang in (de, fr)' (all, if repeated)")
	fl.StringVar(&f.nulls, "nulls", "fail", "rows: a row whose columns are all null: fail, empty (its fields have no bytes) or skip it and count it")
	f.text.add(cmd)
	f.files.add(cmd)
	titled(cmd, "Rows and attributes")
}

// options parses the flags.
func (f *rowFlags) options() error {
	pairs := func(flag, want string, list []string) (map[string]string, error) {
		var out map[string]string
		for _, text := range list {
			a, b, ok := strings.Cut(text, "=")
			if _, twice := out[a]; twice {
				return nil, usagef("--%s %q: %q is given twice: leave one out", flag, text, a)
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
	if f.onNulls, ok = map[string]source.Nulls{"fail": source.NullsFail, "empty": source.NullsEmpty, "skip": source.NullsSkip}[f.nulls]; !ok {
		return usagef("--nulls %q: use fail, empty or skip", f.nulls)
	}
	var err error
	if f.renamed, err = pairs("rename", "column=name", f.rename); err != nil {
		return err
	}
	if f.attributes, err = pairs("attr", "NAME=COLUMN or NAME=len(FIELD), as in width=w", f.attrs); err != nil {
		return err
	}
	return cmp.Or(f.text.options(), f.files.options(f), f.cutLengths())
}

// cutLengths moves the attributes that are lengths of arrays from attributes to lengths.
func (f *rowFlags) cutLengths() error {
	for attr, of := range f.attributes {
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
		delete(f.attributes, attr)
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
func (f *rowFlags) provenance(to map[string]string) {
	list := func(name string, values []string) {
		if len(values) > 0 {
			to[name] = fmt.Sprintf("%q", values)
		}
	}
	if f.key != "" {
		to["key"] = f.key
	}
	f.text.provenance(to)
	if f.nulls != "fail" {
		to["nulls"] = f.nulls
	}
	list("columns", f.columns)
	list("rename", slices.Sorted(slices.Values(f.rename)))
	list("attr", slices.DeleteFunc(slices.Sorted(slices.Values(f.attrs)), func(text string) bool { // the writer records lengths
		_, of, _ := strings.Cut(text, "=")
		_, is := lengthOf(of)
		return is
	}))
	list("where", f.where)
	f.files.provenance(to)
}

// fileColumnFlags have the files that rows name become fields.
type fileColumnFlags struct {
	given   []string // as FIELD=COLUMN
	root    string
	columns []filecolumns.Column
}

func (f *fileColumnFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.given, "file-column", nil, "rows: read the files whose paths a column has, as FIELD=COLUMN: image=file_name gives image.jpg (may be repeated)")
	fl.StringVar(&f.root, "file-root", "", "rows: the folder, or address, of the files of --file-column (default: the folder of the file of rows)")
}

// options parses the flags.
func (f *fileColumnFlags) options(r *rowFlags) error {
	f.columns = nil
	for _, text := range f.given {
		field, name, ok := strings.Cut(text, "=")
		if !ok || name == "" || field == "" || format.CheckField(field) != nil || slices.ContainsFunc(f.columns, func(c filecolumns.Column) bool { return c.Field == field }) {
			return usagef("--file-column %q: write FIELD=COLUMN, such as image=file_name, each field once", text)
		}
		if name == r.key && !slices.Contains(r.columns, name) {
			return usagef("--file-column %s: the column %s has the keys and becomes no field: name it with --columns too", text, name)
		}
		base := name
		if to := r.renamed[name]; to != "" {
			base = to
		}
		f.columns = append(f.columns, filecolumns.Column{Field: field, Name: name, From: []string{base, base + ".txt"}})
	}
	if f.root != "" && len(f.columns) == 0 {
		return usagef("--file-root goes with --file-column: it is the folder of its paths")
	}
	return nil
}

// provenance records the options in the metadata of the data set.
func (f *fileColumnFlags) provenance(to map[string]string) {
	if len(f.given) > 0 {
		to["file_column"] = fmt.Sprintf("%q", f.given)
	}
	if place, _, _ := strings.Cut(f.root, "?"); place != "" { // its options may be secret
		to["file_root"] = place
	}
}
