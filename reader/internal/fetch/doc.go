// Package fetch turns stored bytes into checked, decoded blocks.
//
//	Job (rows of a shard) ──▶ Source.open: one handle for all users of an object
//	    ──▶ ReadAt, of many small rows at once
//	    ──▶ CRC-32C of the stored bytes ──▶ decode ──▶ Result, in the job's buffer
//
// A Worker does this for one goroutine. Workers of a remote store wait for it without holding a
// decoder: a Flight lends them one, and bounds the bytes on their way. A Pipeline runs jobs on
// several workers and yields their results in order.
//
// Two rules hold for every path that reads a data set, because they are implemented only here:
//
//   - Bytes are used only after their checksum was compared, in memory that nobody else writes to.
//   - Bytes that look damaged are read a second time, from an object that is opened again and past
//     what a cache has kept (Source.Twice). Damage counts only when the second read finds it too.
package fetch
