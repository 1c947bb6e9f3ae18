package lines

import (
	"github.com/shardtool/shardtool/internal/input/mds"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// textLine stands in place of the separator of cells for files whose lines are texts.
const textLine = 0xfc

// textFile is one of the files.
type textFile struct {
	inputs.File
	coding stream.Coding
	// separator of cells; 0 in JSON Lines, textLine in text, tfRecord in TFRecord, jsonList in JSON,
	// mdsShard in MDS
	comma  byte
	header []string // of CSV and MDS; files with the same header share one slice
	bare   bool     // the first row is no header
	plain  bool     // quotes are text
	first  place    // the first row
	shard  *mds.Shard
}

// cells reports whether rows are cells of CSV.
func (f *textFile) cells() bool { return f.comma != 0 && f.comma < textLine }

// row iterates over the cells of a row.
func (f *textFile) row(b []byte) cells {
	return cells{b: trimEnd(b), comma: f.comma, plain: f.plain}
}

// whole reports whether the rows are found only from the beginning.
func (f *textFile) whole() bool { return f.coding != stream.Plain || f.comma >= mdsShard }
