// Package check verifies that a data set is intact.
//
//	manifest.json ──▶ tables: name, hash, digest, totals ──▶ keys table: header, order, entries
//	each shard ──▶ object: size, end ──▶ index: rows, keys, fields, attributes
//	           ──▶ every block: checksum, decoded content against the index, identity    (Deep)
//
// It reports every fault with its place and kind, and continues. Bytes that were damaged in the
// first read and correct in a second one are a note, not a fault.
package check
