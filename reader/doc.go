// Package reader reads data sets.
//
// [Open] opens a generation of a data set in an [objstore.Store], to be read in three ways:
//
//   - [Dataset.Stream] delivers batches for training: shuffled, split over ranks, for any number of
//     epochs, from any checkpoint. [OpenSources] does the same for several data sets.
//   - [Dataset.Samples], [Dataset.Frames] and [Dataset.Blocks] go through it in storage order.
//   - [Dataset.Get], [Dataset.Field] and [Dataset.Lookup] read single samples by number or key.
//
// Everything that is read passes through the same steps:
//
//	order, storage order or number ──▶ jobs ──▶ fetch, check, decode ──▶ back in order ──▶ samples
//	                                            on Options.Workers
//
// Memory is bounded in bytes, by [Options.Memory] and [Tuning].
//
// Related packages:
//
//   - reader/check verifies every byte of a data set.
//   - reader/order decides the order, and has the text of checkpoints.
//   - reader/mixfile reads mix files.
//   - reader/export writes lists that other loaders read.
//   - reader/metrics has the figures of a stream for Prometheus.
//
// # Trust
//
// Stored bytes are compared with the CRC-32C in the tables before they are used, and the size of an
// object is compared with the tables when it is opened, unless that takes a request: the read then
// finds what is missing. Bytes that are delivered are the bytes that were packed. Damage is an
// error that wraps [format.ErrCorrupt], with shard, block and offset, after a second read has
// confirmed it.
//
// # Concurrency
//
// A [Dataset] may be used by many goroutines. An iterator belongs to the goroutine that ranges over
// it. When its loop ends, by a break too, all goroutines that it started have ended.
package reader
