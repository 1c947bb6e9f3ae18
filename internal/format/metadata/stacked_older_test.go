package metadata

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// TestStackedOlderReader reads stacked data as programs of format 1.0 do, which know neither
// layouts nor numbered keys: they refuse it and name what they lack.
func TestStackedOlderReader(t *testing.T) {
	_, numbered, _ := stackedShard(t, false)
	_, stored, _ := stackedShard(t, true)
	m := testManifest(3, 0, 3)
	m.Shards[2].Layout = &stacked.Layout{Fields: []stacked.Field{{Name: "x.npy", DType: "<u2", Shape: []int64{2}}}}
	for name, c := range map[string]struct {
		raw   []byte
		magic string
		now   map[string]bool // sections that this version knows
	}{
		"shard":              {numbered[bytes.LastIndex(numbered, []byte(magicHot)):], magicHot, shardSections},
		"shard, keys stored": {stored[bytes.LastIndex(stored, []byte(magicHot)):], magicHot, shardSections},
		"tables":             {encodeTables(t, m), magicTables, tablesSections},
	} {
		if _, err := section.DecodeDirectory(c.raw, c.magic, func(kind string) bool { return c.now[kind] }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, err := section.DecodeDirectory(c.raw, c.magic, func(kind string) bool {
			return c.now[kind] && kind != section.KindLayout && kind != section.KindKeyNumbers
		})
		if !errors.Is(err, format.ErrVersion) || !strings.Contains(err.Error(), `"LAYT"`) && !strings.Contains(err.Error(), `"KNUM"`) || !strings.Contains(err.Error(), "use a newer shardtool") {
			t.Errorf("%s in a reader of 1.0: %v", name, err)
		}
	}
}
