package lines

import (
	"context"

	"github.com/shardtool/shardtool/internal/mds"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/stream"
)

// textFile is one of the files.
type textFile struct {
	inputs.File
	coding stream.Coding
	comma  byte     // separator of cells; 0 in JSON Lines, tfRecord in TFRecord, jsonList in JSON, mdsShard in MDS
	header []string // of CSV and MDS; files with the same header share one slice
	first  place    // the first row
	shard  *mds.Shard
}

// cells reports whether rows are cells of CSV.
func (f *textFile) cells() bool { return f.comma != 0 && f.comma < mdsShard }

// whole reports whether the rows are found only from the beginning.
func (f *textFile) whole() bool { return f.coding != stream.Plain || f.comma >= mdsShard }

// unchanged checks a local file again after it was read. Remote stores check by themselves.
func (f *textFile) unchanged(ctx context.Context) error {
	if f.Remote {
		return nil
	}
	info, err := f.Store.Stat(ctx, f.Name)
	if err != nil {
		return err
	}
	return f.Same(info)
}
