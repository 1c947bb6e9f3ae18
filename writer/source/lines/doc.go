// Package lines makes samples of the rows of text files: JSON Lines, CSV and TSV, plain or compressed by gzip or zstd. Each line
// of JSON is an object whose members become fields; of CSV each cell does, called as the header says.
//
//	src, err := lines.New(ctx, inputs, lines.Options{Key: "id"})
//	defer src.Close()
//	result, err := writer.Pack(ctx, store, src, writer.Options{Name: "train"})
//
// # Who does what
//
//	object -> bytes, decompressed -> chunks of whole rows -> rows parsed, on all cores -> samples, in order
//
// One goroutine reads and cuts (cut.go, quotes.go), which is all that has to be done in order; others parse chunks (parser.go,
// json.go, csv.go); Next hands out what they made.
//
// # What is wrong
//
// A row that cannot be read is a *writer.SampleError that names the file and the line, and reading goes on with the next line,
// also behind a quote that is not closed. What is wrong with a file as a whole (a compressed stream that was cut, a file that
// changed) ends the source.
//
// # Memory
//
// A few chunks of 256 KiB for each core. A longer row is held whole, up to Options.MaxLine; memory for it is taken as its bytes
// come.
package lines
