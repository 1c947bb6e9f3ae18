// Package parquet makes samples of the rows of Parquet files: each column becomes a field, rows come file by file and row
// group by row group.
//
//	src, err := parquet.New(ctx, inputs, parquet.Options{Key: "id"})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// It is a package of its own so that only programs that read Parquet link the library for it.
//
// # Who does what
//
// Apache Arrow's parquet/file decodes values. What it takes on trust is looked at before, here: the
// footer's length and its tree of columns (footer.go), their types (elements.go), headers, sizes and
// checksums of pages (pages.go), levels and indexes (levels.go). Encodings that it decodes without
// looking at lengths, or not at all, come to it as plain values (delta.go). A panic that is left is
// recovered in one place (protect) and becomes an error that names file, row group, column and row.
//
//	footer -> plan of columns -> row group: pages -> leaves, 128 values at a time -> cells of a row -> fields of a sample
//
// # Memory
//
// Of every column that is read one page, its dictionary and one compressed page are held: at most
// what a row group decodes to, and Options.PageMemory for a page, whatever the size of the file.
// Pages are read into the same buffers again and again. From remote stores parts of column chunks of
// up to 8 MiB are read ahead, 64 MiB together.
package parquet
