// Package reader reads data sets: from the manifest to samples. It opens a generation, says what is
// in it, streams it in storage order on all cores, reads single samples by number or key, and
// verifies every byte.
//
//	store -> tables -> jobs -> fetch, check, decode on Workers goroutines -> back in order -> frames, samples
//	                   order    objects, scratch, format.Decoder            pipeline
//
// What decides the order is a sequence of jobs; everything after it (type pipeline) takes any such
// sequence. Memory is bounded in bytes by [Options.Memory], not in blocks.
//
// # Trust
//
// Stored bytes are compared with the CRC-32C that the tables give for them before anything else is
// done with them, and an object's size is compared with the tables when it is opened; where asking
// for it takes a request, what is missing comes out when it is read, and Verify asks. Bytes that
// are handed over are the bytes that were packed, or an error comes in their place:
// [format.ErrCorrupt] with shard, block and offset.
//
// # Concurrency
//
// A [Dataset] may be used from many goroutines. An iterator belongs to the goroutine that ranges
// over it; when its loop ends, by a break too, every goroutine it started has ended.
package reader
