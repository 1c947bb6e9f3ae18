package lines

import (
	"context"

	"github.com/shardtool/shardtool/writer/source/internal/inputs"
	"github.com/shardtool/shardtool/writer/source/internal/stream"
)

// textFile is one of the files.
type textFile struct {
	inputs.File
	coding stream.Coding
	comma  byte     // separator of cells; 0 in JSON Lines
	header []string // of CSV; files with the same header share one slice
	first  place    // the first row
}

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
