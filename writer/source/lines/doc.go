// Package lines reads the rows of text files as samples: JSON Lines, CSV and TSV, plain or
// compressed with gzip, zstd, bzip2, xz or lz4. The members of a JSON object become fields, as do
// the cells of a CSV row, named by the header.
//
//	src, err := lines.New(ctx, inputs, lines.Options{Key: "id"})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// # Path of the data
//
//	object -> decompressed bytes -> chunks of whole rows -> rows, on all cores -> samples, in order
//
// One goroutine reads and cuts (cut.go), the only work that must be done in order.
// Others parse chunks (parser.go, json.go, csv.go), and Next returns what they made.
//
// A parser puts the values of a row into the cells of its columns. What becomes of a row is decided
// in package rows, as for all formats (Walk.Take): its conditions, key, nulls and attributes. Here
// a value becomes a field by its kind (AddFields).
//
// # Errors
//
// A row that cannot be read is a *writer.SampleError with file and line. Reading continues with the
// next line, even after a quote that is not closed. An error of a whole file (a truncated
// compressed stream, a file that changed) ends the source.
//
// # Memory
//
// A few chunks of 256 KiB per core are in memory. A longer row is held whole, up to
// Options.MaxLine; its buffer grows as its bytes arrive.
//
// # Parsers
//
// The package has its own parsers, which return slices of a chunk and do not allocate per row.
// BenchmarkScan measures them on one core, cutting included. In MB/s, the best of three runs in
// turn with the libraries:
//
//	                                  here  library
//	JSON, rows of 3 KB of text        1567      533  jsontext (go-json-experiment)
//	JSON, rows of 53 bytes             394      208  jsontext
//	JSON, lists of 500 integers        327      304  jsontext
//	CSV, rows of 3 KB of text         2099     1776  encoding/csv
//	CSV, rows of 32 bytes              303      295  encoding/csv
//
// For CSV the content decides. encoding/csv replaces CR LF by LF inside quotes, does not
// distinguish an empty cell, which is null, from an empty string in quotes, refuses quotes inside
// other cells, and cannot continue after a quote that is not closed.
package lines
