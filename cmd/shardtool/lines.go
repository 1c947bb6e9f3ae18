package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/writer"
	rowlines "github.com/shardtool/shardtool/writer/source/lines"
)

// Text files whose lines are rows, TFRecord files whose records are, and shards of MosaicML
// Streaming whose samples are.
var (
	linesKind    = rowsKind(recognise.Lines, openLines, "delimiter")
	tfrecordKind = rowsKind(recognise.TFRecord, openLines)
	mdsKind      = rowsKind(recognise.MDS, openLines)
)

func openLines(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	if len(found.files) == 0 { // an index names none
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, strings.Join(found.srcs, ", "))}
	}
	r := &f.rows
	src, err := rowlines.New(ctx, found.files, rowlines.Options{Key: r.key, Columns: r.columns, Rename: r.renamed, Attrs: r.attributes, Where: r.where, Delimiter: r.delimiter, Nulls: r.onNulls})
	if err != nil {
		return nil, 0, optionError(err)
	}
	_, size := src.Total()
	text := plural(len(found.files), "file") + " of JSON Lines or CSV"
	switch found.kind.of {
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
