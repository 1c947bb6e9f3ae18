package metadata

import (
	"errors"
	"reflect"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestBase: tables keep the base of a layer, and it fits data sets that begin with the same shards.
func TestBase(t *testing.T) {
	open := func(m *Manifest) *Tables {
		raw := encodeTables(t, m)
		tables, err := OpenTables(readFrom(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		return tables
	}
	base := testManifest(3, 0, 4)
	layer := testManifest(3, 0, 4)
	layer.Base = BaseOf(base, -1, []string{"caption", "txt"})
	tables := open(layer)
	back, err := tables.Load()
	if err != nil || !reflect.DeepEqual(back.Base, layer.Base) {
		t.Fatalf("%+v, %v", back.Base, err)
	}
	fits := func(b *Tables) error { return tables.Base.Fits(b, tables.Shards, tables.Samples) }

	longer := testManifest(3, 0, 4, 2)
	removed := testManifest(3, 0, 4)
	removed.Removed = []uint64{1}
	for name, m := range map[string]*Manifest{"its own": base, "appended": longer, "removed": removed} {
		if err := fits(open(m)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := testManifest(3, 0, 4, 2)
	other.Shards[2].Hash = format.BlockHash([]byte("other"))
	cut := testManifest(3, 0, 4, 2)
	cut.Shards[0].Rows[0].Samples, cut.Shards[0].Rows[1].Samples = cut.Shards[0].Rows[1].Samples, cut.Shards[0].Rows[0].Samples
	for name, m := range map[string]*Manifest{
		"fewer shards": testManifest(3, 0), "another shard": other, "other cuts": cut, "other order": testManifest(3, 4, 0, 2), "a layer": layer,
	} {
		if err := fits(open(m)); !errors.Is(err, format.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tables.Base.Fits(open(base), 2, tables.Samples); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a layer of fewer shards: %v", err)
	}
	layer.Base.Replaces = []string{"b", "a"}
	if _, _, _, err := EncodeTables(layer); err == nil {
		t.Error("names that do not ascend were written")
	}
}
