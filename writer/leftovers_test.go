package writer_test

import (
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestOverwriteLeftovers: a pack that overwrites replaces the shards that another one left, and
// leaves alone shards of other names and objects that no Writer put.
func TestOverwriteLeftovers(t *testing.T) {
	st := interrupted(t, 50, small("d"))
	other := interrupted(t, 50, small("e"))
	for name, data := range objects(t, other) {
		replace(t, st, name, data)
	}
	replace(t, st, "d-notes-000000.tar.zst", []byte("a user's own"))
	opt := small("d")
	opt.Mode = writer.ModeOverwrite
	left, err := writer.Leftovers(t.Context(), st, "d")
	if err != nil || len(left) == 0 {
		t.Fatal(left, err)
	}
	src := func() *synth { return &synth{items: makeItems(10, 12<<10, 5), tag: "changed"} }
	mustPack(t, st, src(), opt)
	clean := mem.New()
	mustPack(t, clean, src(), opt)
	want := objects(t, clean)
	for name, data := range objects(t, other) {
		want[name] = data
	}
	want["d-notes-000000.tar.zst"] = []byte("a user's own")
	sameObjects(t, "overwritten", objects(t, st), want)
}
