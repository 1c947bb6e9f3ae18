// Package format turns samples into the bytes of a data set and back: tar members, blocks, shards,
// their index, the manifest over them, and the hashes that identify a data set. It knows no
// files, network or clock and starts no goroutine. SPEC.md at the root of the repository is the
// normative text; section numbers in comments are its sections.
//
//	shard  name-000000.tar.zst
//	+---------------------------+ 0
//	| block 0                   |  one zstd frame (several above 16 MiB), whole samples as tar members
//	| …                         |
//	| block B-1                 |
//	+---------------------------+ data_len
//	| EOA                       |  one zstd frame of 1,024 zero bytes: the tar end-of-archive
//	+---------------------------+ data_size
//	| COLD   skippable frame    |  sizes, shapes, keys, attributes: for random access and listing
//	| HOT    skippable frame    |  directory of sections; schema, frame rows, metadata
//	| LOCATOR skippable frame   |  where HOT is; fixed size
//	| SEEK TABLE skippable frame|  of the zstd seekable format; its last 9 bytes end the file
//	+---------------------------+
//
// Tools such as `zstd -dc | tar -x` read everything up to EOA; every zstd decoder skips the rest. A
// plain .tar shard has the same blocks without compression, and the tail above in a sidecar file.
//
// # Use
//
// A writer adds samples to a [BlockBuilder], compresses each block frame by frame with an
// [Encoder], collects an [IndexBuilder] and ends the object with [AppendTail]. A reader passes the
// last bytes of an object to [ParseTail] and then reads any block by its rows: [CheckFrame],
// [Decoder.Decode], and a [Walker] over the members. The [Manifest] of a data set has the rows of
// all shards, so that streaming reads no index of a shard.
//
// # Errors
//
// Input that this package would not write is [ErrCorrupt], wrapped in a [*PosError] with its place.
// No input makes a function panic. Sizes found in input are compared with the bytes at hand before
// anything is allocated: an index takes at most 40 bytes for each of its bytes, decompressed, and 4
// for each decoded byte of the shard's blocks; tables take 400 for each byte (a shard of 32 bytes
// may have names of 9 KiB); a frame takes the decoded length in its row.
package format
