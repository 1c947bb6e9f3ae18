// Package format turns samples into the bytes of a data set and back: tar members, blocks, shards,
// their index, the manifest over them, and the hashes that say what a data set is. It knows no
// files, no network, no clock and starts no goroutine. SPEC.md at the root of the repository is the
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
// Everything up to EOA is what `zstd -dc | tar -x` reads; everything after it is skipped by every
// zstd decoder. A plain .tar shard holds the same blocks without compression, and the tail above in
// a sidecar file.
//
// # Use
//
// A writer fills a [BlockBuilder] with samples, passes each block's bytes to an [Encoder] frame by
// frame, collects rows and columns in a [ShardIndex] and ends the object with [AppendTail]. A
// reader takes the last bytes of an object to [ParseTail], then any block by its rows:
// [CheckFrame], [Decoder.Decode], and a [Walker] over the members. A data set's [Manifest] has the
// rows of all shards, so that streaming opens none of them.
//
// # Errors
//
// Input that is not what this package would write is [ErrCorrupt], wrapped in a [*PosError] with
// the place. No input makes a function panic, and sizes found in input are compared with what is
// there before anything is allocated: reading an index takes at most 40 bytes for each byte of it,
// decompressed, and 4 for each decoded byte of the shard's blocks; reading tables 400 for each byte
// (a shard of 32 bytes may have names of 9 KiB); decoding a frame what its row says.
package format
