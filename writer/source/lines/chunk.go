package lines

import (
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// place is the beginning of a row: the file, the offset in its decoded bytes, its line from 1, and
// its number from 0. If line is 0, the row is the first one at or after off and has yet to be
// located.
type place struct {
	file           int
	off, line, row int64
}

// chunkSize is the approximate size of a chunk of whole rows: it fits in a core's cache, and bounds
// what bad rows of two bytes cost.
const chunkSize = 256 << 10

// span is a CSV row in a chunk.
type span struct {
	begin, end int
	line, row  int64
	lines      int64 // number of lines that the row spans
	bad        error
}

// add appends a row, whose sample ends where the chunk's end.
func (c *chunk) add(line int64, after place, err error) {
	c.rows = append(c.rows, row{err: err, line: line, dropped: c.dropped, after: after, key: int32(len(c.Keys)),
		field: int32(len(c.Fields)), attr: int32(len(c.Attrs))})
	c.dropped = 0
}

// chunk is a run of rows of a file and the samples made from them.
type chunk struct {
	of *textFile
	place
	buf   []byte
	spans []span // of CSV
	limit int    // of a row
	// long means that the chunk stands for one row that is longer and holds none of its bytes. after
	// is the place after it.
	long  bool
	after place
	err   error // error of the stream; the last chunk

	rows []row
	rows.Samples
	lessons []lesson
	dropped int64  // rows after the last of rows, that a filter drops
	keys    string // copy of Keys; it lives as long as the shard is written, so it holds nothing else

	cost  int64
	ready chan struct{}
}

// row is a sample or an error.
type row struct {
	err              error
	line             int64
	dropped          int64 // rows before it, that a filter drops
	key, field, attr int32 // the ends of the sample's in the chunk
	after            place
}

func (c *chunk) reset() {
	clear(c.Fields) // release the names
	clear(c.rows)
	c.Samples.Reset()
	*c = chunk{of: c.of, buf: c.buf[:0], spans: c.spans[:0], rows: c.rows[:0], Samples: c.Samples, lessons: c.lessons[:0],
		ready: c.ready}
	if cap(c.buf) > 4<<20 || cap(c.Data) > 4<<20 { // after a long row
		c.buf, c.Data = nil, nil
	}
}

// lesson states that a row of a chunk has a field of a kind.
type lesson struct {
	row        int
	name, word string
}
