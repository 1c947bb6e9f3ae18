// Package serve runs the reader as a child process. It delivers batches to the process that started
// it, in shared memory. The Python package is built on it. PROTOCOL.md defines the
// protocol.
//
//	control frames (64 bytes)  <->  socket pair  <->  parent
//	reader.Stream -> Next -> gather (views by column) -> ring: a region in a segment -> BATCH
//
// One goroutine reads frames. It handles releases of memory and the end of the child at once, and
// passes requests to a second goroutine, which handles them in order. A run (a stream being
// delivered) has a third goroutine, heartbeats a fourth, and each GET a separate one.
//
// The payload bytes of a sample are copied once, from its decoded block to the ring.
package serve
