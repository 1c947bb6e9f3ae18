// Package writer turns samples into a data set: blocks, shards, tables, and last of all the
// manifest that publishes them.
//
//	w, err := writer.New(ctx, store, writer.Options{Name: "train"})
//	defer w.Abort()                       // does nothing after Close
//	for … { err = w.Write(ctx, writer.Sample{Key: "a/0001", Fields: …}) }
//	result, err := w.Close(ctx)           // publishes
//
// [Pack] does that for a [Source], and continues after a crash where Options.Resume says so;
// package writer/source has sources for files.
//
// # How it works
//
// Write lays samples out in a block and hands full blocks to workers, which read payloads that were
// not given in memory, hash and compress; one goroutine puts the results back in order and streams
// shards to the store:
//
//	Write -> layout -> [workers: read, hash, compress] -> in order -> shard -> store
//	                                                   Close: keys table -> tables -> manifest.json
//
// Where blocks and shards end depends on the samples and the options alone. Bytes and digest are
// therefore the same for any number of workers, on any machine, at any time.
//
// # What a crash leaves
//
// Shards are put one after the other, each whole; nothing refers to them before the manifest is
// put, last and conditionally. A process that dies leaves the data set that was there, and shards
// that nothing refers to: Resume adopts them, [Prune] removes them. Of two writers into one place,
// one publishes; the other gets an error and changes nothing.
//
// # Memory
//
// Blocks in flight are bounded by Options.Memory. Beside them stand the block being laid out, an
// encoder for each worker, the index of the shard at hand (some 20 bytes a sample and its key),
// sorting of key hashes (bounded, spilled to a temporary file), and a row of 16 bytes for every
// block written.
package writer
