package writer

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
)

// sidecarOf is the only sidecar of an archive.
func sidecarOf(t *testing.T, store objstore.Store, archive string) (name string) {
	t.Helper()
	for info, err := range store.List(t.Context(), archive+".") {
		if err != nil || name != "" {
			t.Fatal(name, info.Name, err)
		}
		name = info.Name
	}
	return name
}

// TestIndexOtherBlocks: an archive that is indexed with other blocks gets another sidecar, and the
// generation before keeps the one it has.
func TestIndexOtherBlocks(t *testing.T) {
	store := mem.New()
	putObject(t, store, "sub/a.tar", archive(t, tar.FormatPAX, "", foreignMembers("k", 40)))
	var generations []string
	for i, size := range []int64{4096, 8192, 4096} {
		mode := ModeOverwrite
		if i == 0 {
			mode = ModeCreate
		}
		res, err := Index(t.Context(), store, []string{"sub/a.tar"}, Options{BlockSize: size, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		generations = append(generations, strings.TrimSuffix(strings.TrimPrefix(res.Tables, "manifest-"), ".bin"))
		for _, generation := range generations {
			r, err := check.Verify(t.Context(), store, check.Options{Generation: generation, Deep: true})
			if err != nil || !r.OK() {
				t.Fatalf("block size %d: generation %s: %+v, %v", size, generation, r, err)
			}
		}
	}
	before := map[string]bool{}
	for info, err := range store.List(t.Context(), "sub/") {
		if err != nil {
			t.Fatal(err)
		}
		before[info.Name] = true
	}
	if len(before) != 3 { // the archive and two sidecars: equal bytes have one name
		t.Fatal(before)
	}
	// A sidecar that an index of a folder above put, one whose name has another hash, and one of
	// old names.
	kept := sidecarOf(t, mustIndex(t, "a.tar", archive(t, tar.FormatPAX, "", foreignMembers("k", 40))), "a.tar")
	others := []string{"sub/" + kept, "sub/a.tar.0000000000000000.shidx", "sub/a-000001.tar.shidx"}
	above := mustIndex(t, "a.tar", archive(t, tar.FormatPAX, "", foreignMembers("k", 40)))
	data, _, err := objstore.ReadAll(t.Context(), above, kept, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		putObject(t, store, name, data)
	}
	res, err := Prune(t.Context(), store, PruneOptions{Keep: 1, Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	gone := 0
	for _, o := range res.Objects {
		if strings.Contains(o.Name, ".tar") {
			gone++
			if !before[o.Name] || o.Name == "sub/a.tar" {
				t.Errorf("prune deletes %s", o.Name)
			}
		}
	}
	if gone != 1 {
		t.Errorf("prune deletes %+v", res.Objects)
	}
	for _, name := range others {
		if _, err := store.Stat(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if r, err := check.Verify(t.Context(), store, check.Options{Deep: true}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestIndexFirstReleases: a data set whose sidecars have the names of the first releases is read,
// added to and indexed anew, and prune leaves those sidecars alone.
func TestIndexFirstReleases(t *testing.T) {
	store := mustIndex(t, "t-000000.tar", archive(t, tar.FormatPAX, "", foreignMembers("a", 40)))
	sum, _, err := loadSummary(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadManifest(t.Context(), store, sum.Tables)
	if err != nil {
		t.Fatal(err)
	}
	tagged := m.Shards[0].IndexObject()
	sidecar, _, err := objstore.ReadAll(t.Context(), store, tagged, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	m.Shards[0].Index.Sidecar = metadata.SidecarTag{}
	old := m.Shards[0].IndexObject()
	tables, name, opened, err := encodeTables(m)
	if err != nil || old != "t-000000.tar.shidx" || bytes.Contains(tables, []byte("SIDE")) {
		t.Fatal(old, err)
	}
	putObject(t, store, old, sidecar)
	putObject(t, store, name, tables)
	putObject(t, store, format.ManifestName, opened.Summary(name).Encode())
	if err := store.Delete(t.Context(), tagged); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		for _, generation := range []string{"", strings.TrimSuffix(strings.TrimPrefix(name, "manifest-"), ".bin")} {
			r, err := check.Verify(t.Context(), store, check.Options{Generation: generation, Deep: true})
			if err != nil || !r.OK() {
				t.Fatalf("%s: %+v, %v", what, r, err)
			}
		}
	}
	check("of the first releases")
	putObject(t, store, "u.tar", archive(t, tar.FormatPAX, "", foreignMembers("b", 9)))
	if _, err := Index(t.Context(), store, []string{"u.tar"}, Options{Mode: ModeAppend}); err != nil {
		t.Fatal(err)
	}
	check("added to")
	if _, err := Index(t.Context(), store, []string{"t-000000.tar", "u.tar"}, Options{Mode: ModeOverwrite, BlockSize: 4096}); err != nil {
		t.Fatal(err)
	}
	check("indexed anew")
	if _, err := Prune(t.Context(), store, PruneOptions{Keep: 1, Grace: -1}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Stat(t.Context(), old); err != nil {
		t.Error(err)
	}
}

// mustIndex is a store with one indexed archive.
func mustIndex(t *testing.T, name string, data []byte) *mem.Store {
	t.Helper()
	store := mem.New()
	putObject(t, store, name, data)
	if _, err := Index(t.Context(), store, []string{name}, Options{BlockSize: 16384}); err != nil {
		t.Fatal(err)
	}
	return store
}
