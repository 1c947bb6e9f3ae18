// Package receive takes samples from another process and is a writer.Source of them. It is the
// child's end of shardtool.Writer of the Python package.
//
// # Frames
//
// The parent sends frames on the child's standard input. A frame is a uint64, whose top byte is the
// kind and whose other bytes are the length of the body, and the body. Numbers are little-endian.
//
//	1 BEGIN    JSON of Begin; once, first
//	2 LAYOUT   JSON of a layout: fields and attributes that samples have; its number is the count of
//	           layouts before it
//	3 SAMPLES  runs of samples, each uint32 layout, uint32 number of samples, and the samples: uint32
//	           length of the key, uint32 length of each field and of the text of each attribute,
//	           then these bytes. A key of length 0xFFFFFFFF is absent: the sample gets its running
//	           number. A run of layout 0xFFFFFFFF has no samples: uint32 n, uint64 first, and n uint32,
//	           the numbers of samples to come of the parent's inputs from number first on
//	4 COLUMNS  uint32 number of rows to leave out, uint32 length of JSON, JSON of columns, then the
//	           buffers that it describes
//	5 END      publish
//	6 STATE    no body; asks for STATE
//	7 SHARED   uint32 slot, uint32 kind, uint64 length: a frame of that kind, SAMPLES or COLUMNS,
//	           whose body is in a slot of the memory that BEGIN names. The child writes the slot's
//	           number, a byte, to BEGIN's pipe when it has taken all of it
//	8 NUMBERS  uint64 each: numbers, in the base of a layer, of the rows of the next COLUMNS
//	9 SHARD    uint32: the number of a shard of a layer, whose rows follow, up to END
//	10 COMMIT  no body; publishes a layer whose shards are all there
//
// If the input ends without END, for instance because the parent was killed, nothing is published.
//
// # Replies
//
// The child answers on standard output in JSON, one value a line: READY once it knows where the
// samples begin, STATE for each frame that asks for it, then RESULT or ERROR.
package receive
