package reader

import (
	"context"
	"fmt"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// keyGroups is how many groups of the keys table are read at once: some 4 MiB of entries.
const keyGroups = 256

// KeyHashes yields the hash and the number of every sample, in ascending order of hashes, in slices
// that are valid until the next one. It reads the keys table from front to end; without one it
// fails, see KeysTable.
func (d *Dataset) KeyHashes(ctx context.Context) iter.Seq2[[]samplekey.Entry, error] {
	return func(yield func([]samplekey.Entry, error) bool) {
		if d.keysTable() == "" {
			yield(nil, fmt.Errorf("%v has no keys table", d.Store()))
			return
		}
		var entries []samplekey.Entry
		groups := samplekey.Table{Entries: d.NumSamples()}.Groups()
		var last samplekey.Entry
		for from := int64(0); from < groups; from += keyGroups {
			var err error
			entries, err = d.catalog.KeyGroups(ctx, entries[:0], from, min(from+keyGroups, groups))
			if err == nil && from > 0 && entries[0].Compare(last) <= 0 {
				err = format.InShard(d.keysTable(), fmt.Errorf("%w: the keys table is not in order", format.ErrCorrupt))
			}
			if !yield(entries, err) || err != nil {
				return
			}
			last = entries[len(entries)-1]
		}
	}
}
