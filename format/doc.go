// Package format has the words of a data set that every layer uses: errors with their place, names
// of samples, fields and objects, hashes, attributes, and the row of a frame. The packages below it
// turn samples into bytes and back. All of them know no files, network or clock and start no
// goroutine. SPEC.md at the root of the repository is the normative text; section numbers in
// comments are its sections.
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
// # Packages below internal
//
//   - tarblock lays out samples as tar members and walks them,
//   - stacked does the same for samples that are rows of arrays,
//   - codec compresses, checks and decodes the frames of blocks,
//   - samplekey finds samples by key: the keys table and numbered keys,
//   - section and metadata encode and decode the index of a shard, the tables of a generation and
//     manifest.json,
//   - viewfile does the same for the files of views,
//   - names has the names of the objects of a data set.
//
// A writer adds samples to a tarblock.Builder, compresses each block frame by frame with a
// codec.Encoder, collects a metadata.IndexBuilder and ends the object with metadata.AppendTail. A
// reader passes the last bytes of an object to metadata.ParseTail and then reads any block by its
// rows: codec.CheckFrame, codec.Decoder.Decode, and a tarblock.Walker over the members. The
// metadata.Manifest of a data set has the rows of all shards, so that streaming reads no index of a
// shard.
//
// # Errors
//
// Input that these packages would not write is [ErrCorrupt], wrapped in a [*PosError] with its
// place. No input makes a function panic. Sizes found in input are compared with the bytes at hand
// before anything is allocated: an index takes at most 40 bytes for each of its bytes,
// decompressed, and 4 for each decoded byte of the shard's blocks; tables take 400 for each byte (a
// shard of 32 bytes may have names of 9 KiB); a frame takes the decoded length in its row.
package format
