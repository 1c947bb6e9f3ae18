// Package lines reads the rows of text files as samples: JSON Lines, CSV and TSV, plain or
// compressed with gzip or zstd. The members of a JSON object become fields, as do the cells of a
// CSV row, named by the header.
//
//	src, err := lines.New(ctx, inputs, lines.Options{Key: "id"})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// # Path of the data
//
//	object -> decompressed bytes -> chunks of whole rows -> rows parsed, on all cores -> samples, in order
//
// One goroutine reads and cuts (cut.go, quotes.go), the only work that must be done in order.
// Others parse chunks (parser.go, json.go, csv.go), and Next returns what they made.
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
// The package has its own parsers because it stores values as they are written, from slices of a
// chunk, without an allocation per row. Measured on one core against the token reader of jsontext
// (go-json-experiment), BenchmarkScan parses rows of 3 KB of JSON text at 1,500 MB/s instead of
// 305, rows of 53 bytes at 309 instead of 149, and lists of integers at 292 instead of 279.
// encoding/csv reads rows of 32 bytes at 114 MB/s instead of 215 and rows of 3 KB at 805 instead of
// 2,463. It also replaces CR LF by LF inside quotes, and does not distinguish an empty cell, which is
// null, from an empty string in quotes.
package lines
