// Package parquet reads the rows of Parquet and Arrow files as samples: each column becomes a
// field. Rows are in the order of files, row groups and rows. In Arrow files, whose names end in
// .arrow, .arrows, .feather or .ipc, and in streams of Arrow, record batches stand for row groups
// (ipc.go, arrow.go, cells.go).
//
//	src, err := parquet.New(ctx, inputs, parquet.Options{Key: "id"})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// Only programs that import this package link Apache Arrow.
//
// # Path of the data
//
//	footer -> plan of columns -> pages of a row group -> leaves, 128 values at a time -> fields of a sample
//
// What becomes of a row is decided in package rows, as for all formats (Walk.Take): its conditions,
// key, nulls and attributes. Here a column gets its form by its type (setForm), and a value becomes
// fields of that form (AddFields).
//
// Apache Arrow's parquet/file decodes values. This package first checks what that library trusts:
// the footer's length and its tree of columns (footer.go), their types (elements.go), headers,
// sizes and checksums of pages (pages.go), levels and indexes (levels.go). Encodings that the
// library decodes without checking lengths, or does not know, are converted to plain values first
// (delta.go). Any remaining panic is recovered in one place (protect) and becomes an error with
// file, row group, column and row.
//
// # Memory
//
// Each column that is read holds one page and its dictionary; all columns share one buffer for a
// compressed page. The total is at most the decoded size of a row group, and Options.PageMemory per
// page, whatever the size of the file. The buffers are reused from page to page. From remote
// stores, parts of column chunks of up to 8 MiB are prefetched, 64 MiB in total.
package parquet
