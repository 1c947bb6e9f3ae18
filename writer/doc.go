// Package writer turns samples into a data set: blocks, shards, tables, and last of all the
// manifest that publishes them.
//
//	w, err := writer.New(ctx, store, writer.Options{Name: "train"})
//	defer w.Abort()                       // does nothing after Close
//	for … { err = w.Write(ctx, writer.Sample{Key: "a/0001", Fields: …}) }
//	result, err := w.Close(ctx)           // publishes
//
// [Pack] does the same for a [Source], and with Options.Resume continues after a crash. Package
// writer/source has sources for files.
//
// # How it works
//
// Write lays out samples in a block and sends full blocks to workers. They read payloads that are
// not in memory, hash and compress. One goroutine puts the results in order and streams shards to
// the store:
//
//	Write -> layout -> [workers: read, hash, compress] -> in order -> shard -> store
//	                                                   Close: keys table -> tables -> manifest.json
//
// Where blocks and shards end depends on the samples and the options alone. Bytes and digest are
// therefore the same for any number of workers, on any machine, at any time.
//
// # After a crash
//
// Shards are put one after the other, each complete. No object names them until the manifest is put
// last, on the condition that nobody else published. A process that dies therefore leaves the
// earlier data set, and shards that no manifest names: Resume adopts them, [Prune] deletes them. Of
// two writers into one place one publishes; the other gets an error and changes nothing.
//
// # Memory
//
// Options.Memory bounds the blocks in flight. In addition the writer holds the block being laid
// out, an encoder for each worker, the index of the current shard (some 20 bytes a sample and its
// key), memory to sort key hashes (bounded; the rest is in a temporary file), and a row of 16 bytes
// for every block written.
package writer

// Files that belong together begin alike:
//
//	pack, parts, index    what users call to write a generation
//	writer                the Writer: where blocks and shards end, beginning and end of a generation
//	block, frame          how samples are laid out and compressed
//	pipeline, emit, shard from blocks to objects
//	keys, totals, publish what a generation has beside its shards, and its manifest
//	prune, purge, remove, views  operations on what was published
//	load, put, present, written, names  the objects of generations in a store
