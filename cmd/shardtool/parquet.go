package main

import (
	"context"
	"io"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// Parquet files, and Arrow files and streams.
var (
	parquetKind = rowsKind(recognise.Parquet, openParquet)
	arrowKind   = rowsKind(recognise.Arrow, openParquet)
)

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
