package main

import (
	"context"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// parquetKind is Parquet files, whose rows are samples.
var parquetKind = kind{
	name:    "Parquet files",
	one:     "a Parquet file",
	of:      recognise.Parquet,
	flags:   rowsOnly,
	instead: func(string) string { return "--columns and --where choose, and reading shuffles" },
	open:    openParquet,
}

// arrowKind is Arrow files and streams, whose rows are samples too.
var arrowKind = kind{
	name:    "Arrow files",
	one:     "an Arrow file",
	of:      recognise.Arrow,
	flags:   rowsOnly,
	instead: parquetKind.instead,
	open:    openParquet,
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
	if rows == 0 {
		src.Close()
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, plural(len(found.files), one))}
	}
	return src, size, nil
}
