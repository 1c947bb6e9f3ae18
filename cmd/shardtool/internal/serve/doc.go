// Package serve is the reader as a child process: it hands batches to the process that started it,
// in memory that both map. It is what the Python package stands on. docs/serve-protocol.md has
// every byte.
//
//	control frames (64 bytes)  <->  socket pair  <->  parent
//	reader.Stream -> Next -> gather (views by column) -> ring: a region in a segment -> BATCH
//
// One goroutine reads frames: what gives memory back or ends the child is done at once, requests go
// to a second one, in order; a run (a stream being delivered) has a third, each GET one of its own.
// A fourth looks after signs of life.
//
// The payload bytes of a sample are copied once, from its decoded block to the ring.
package serve
