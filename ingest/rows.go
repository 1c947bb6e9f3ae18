package ingest

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/writer"
	rowlines "github.com/shardtool/shardtool/writer/source/lines"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// Parquet files; Arrow files and streams; text files whose lines are rows; TFRecord files, whose
// records are; and shards of MosaicML Streaming, whose samples are.
var (
	parquetKind = rowsKind(recognise.Parquet, openParquet, "widen")
	arrowKind   = rowsKind(recognise.Arrow, openParquet, "widen")
	linesKind   = rowsKind(recognise.Lines, openLines, "delimiter", "header", "no-header", "columns-are", "quote",
		"allow-nan")
	textKind     = rowsKind(recognise.Text, openLines) // by Options.TextLines
	tfrecordKind = rowsKind(recognise.TFRecord, openLines)
	mdsKind      = rowsKind(recognise.MDS, openLines)
)

// rowsKind returns a kind of files whose rows are samples. more are its options besides rowsOnly.
func rowsKind(of *recognise.Kind, open func(context.Context, *Found) (writer.Source, int64, error),
	more ...string) kind {
	return kind{
		of:      of,
		rows:    true,
		options: append(more, rowsOnly...),
		instead: map[string]string{"key-prefix": "its keys begin with the name of the file, unless a column has them",
			"": "choose by columns and conditions, and shuffle when reading"},
		open: open,
	}
}

func openParquet(ctx context.Context, f *Found) (writer.Source, int64, error) {
	r := &f.Rows
	one := "Parquet file"
	if f.kind.of == recognise.Arrow {
		one = "Arrow file"
		for i := range f.files { // whatever their names
			f.files[i].As = ".arrow"
		}
	}
	src, err := parquet.New(ctx, f.files, parquet.Options{Key: r.Key, Columns: r.Columns, Rename: r.Rename,
		Attrs: r.Attrs, Where: r.Where,
		Nulls: r.Nulls, Arrays: f.Stacked, Widen: r.Widen, Log: f.Log, PageMemory: f.Memory})
	if err != nil {
		return nil, 0, err
	}
	for _, column := range src.Widened {
		f.warn("column %s has integers in some files and floats in others: all are read as floats of 64 bits", column)
	}
	f.leaveFiles(src.Passed)
	f.even = src.Even
	rows, size := src.Total()
	f.known("%s in %s, %s of columns", plain.Plural(rows, "row"), plain.Plural(len(f.files), one),
		plain.Bytes(uint64(size)))
	return opened(src, rows, plain.Plural(len(f.files), one))
}

func openLines(ctx context.Context, f *Found) (writer.Source, int64, error) {
	if len(f.files) == 0 { // an index names none
		return nil, 0, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, f.allNames())
	}
	r := &f.Rows
	src, err := rowlines.New(ctx, f.files, rowlines.Options{
		Key: r.Key, Columns: r.Columns, Rename: r.Rename, Attrs: r.Attrs, Where: r.Where, Nulls: r.Nulls,
		Delimiter: r.Delimiter, Header: r.Header, ColumnsAre: r.ColumnsAre, Unquoted: r.Unquoted, AllowNaN: r.AllowNaN,
		TextLines: f.kind.of == recognise.Text,
	})
	if err != nil {
		return nil, 0, err
	}
	if s, ok := src.(interface{ Passed() []string }); ok {
		f.leaveFiles(s.Passed())
	}
	if s, ok := src.(interface{ Unmet() []*hint.OptionError }); ok {
		f.unmet = s.Unmet
	}
	_, size := src.Total()
	text := plain.Plural(len(f.files), "file") + " of JSON Lines or CSV"
	switch f.kind.of {
	case recognise.Text:
		text = plain.Plural(len(f.files), "file") + " of lines of text"
	case recognise.TFRecord:
		text = plain.Plural(len(f.files), "TFRecord file")
	case recognise.MDS:
		text = plain.Plural(len(f.files), "MDS shard")
	}
	if size > 0 {
		text += ", " + plain.Bytes(uint64(size))
	}
	f.known("%s", text)
	return src, size, nil
}

// leaveFiles counts files of which no row is taken.
func (f *Found) leaveFiles(names []string) {
	for _, name := range names {
		f.names.Leave(tally.Where, name)
	}
}

// rowsOnly are the names of the options for all of these kinds.
var rowsOnly = []string{"key", "columns", "rename", "attr", "where", "nulls", "file-column", "file-root"}
