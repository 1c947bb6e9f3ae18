package reader

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset"
)

// TestAttrTotal takes totals from the tables, without a read of any index, and adds up the indexes
// where the tables have none.
func TestAttrTotal(t *testing.T) {
	var samples []testset.Sample
	want := metadata.AttrTotal{Name: "length"}
	for i := range 500 {
		samples = append(samples, testset.Sample{Key: strconv.Itoa(i), Fields: []testset.Field{{Name: "x", Data: make([]byte, 300)}}})
		want.Add(int64(i*i) - 40)
	}
	o := testset.Options{BlockSize: 4 << 10, ShardSize: 32 << 10, Label: func(key string) string { return key[:1] }}
	o.Length = func(key string) int64 {
		i, err := strconv.Atoi(key)
		if err != nil {
			t.Error(err)
		}
		return int64(i*i) - 40
	}
	for _, inTables := range []bool{false, true} {
		o.Edit = nil
		if inTables {
			o.Edit = func(m *metadata.Manifest) { m.AttrTotals = []metadata.AttrTotal{want} }
		}
		store := build(t, samples, o)
		d := open(t, store, Options{})
		if d.NumShards() < 5 {
			t.Fatalf("%d shards", d.NumShards())
		}
		if inTables { // no shard is needed
			for i := range d.NumShards() {
				s, err := d.Shard(t.Context(), i)
				if err == nil {
					err = store.Delete(t.Context(), s.Name)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := d.AttrTotals(t.Context(), "length")
		if err != nil || got[0] != want || got[0].Sum().Cmp(big.NewInt(500*499*999/6-500*40)) != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		all, err := d.AttrTotals(t.Context())
		if err != nil || fmt.Sprint(all) != fmt.Sprint([]metadata.AttrTotal{want}) {
			t.Errorf("%v, %v", all, err)
		}
		for name, text := range map[string]string{"label": `no such integer attribute: "label" is a label`, "x": `no such integer attribute: "x", there are ["length"]`} {
			if _, err := d.AttrTotals(t.Context(), name); !errors.Is(err, ErrNoAttribute) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	plain := open(t, build(t, samples, testset.Options{}), Options{})
	if all, err := plain.AttrTotals(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("no attributes: %v, %v", all, err)
	}
}
