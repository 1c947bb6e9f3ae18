package hubcache_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/shardtool/shardtool/internal/input/hubcache"
)

var errRefused = errors.New("refused")

// TestBlobs: links straight to the contents beside the snapshot are followed, from the snapshot,
// from a folder in it and through a link to it, and no others.
func TestBlobs(t *testing.T) {
	cache := t.TempDir()
	set := filepath.Join(cache, "datasets--o--n")
	at := filepath.Join(set, "snapshots", "abc")
	for _, dir := range []string{filepath.Join(set, "blobs", "more"), filepath.Join(at, "d"), filepath.Join(set, "refs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"blobs/sha", "blobs/more/x", "refs/main"} {
		if err := os.WriteFile(filepath.Join(set, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, from string) {
		t.Helper()
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	link("../../blobs/sha", filepath.Join(at, "good"))
	link("../../../blobs/sha", filepath.Join(at, "d", "good"))
	link(filepath.Join(set, "blobs", "sha"), filepath.Join(at, "absolute"))
	link("../../refs/main", filepath.Join(at, "other"))
	link("../../blobs/more/x", filepath.Join(at, "below"))
	link("../../blobs", filepath.Join(at, "all"))
	link("../../blobs/none", filepath.Join(at, "gone"))
	link("../../refs/main", filepath.Join(set, "blobs", "out"))
	link("../../blobs/../blobs/out", filepath.Join(at, "chain"))
	link(at, filepath.Join(cache, "linked"))
	for _, c := range []struct {
		folder, name string
		good         bool
	}{
		{at, "good", true}, {at, "d/good", true}, {at, "absolute", true}, {filepath.Join(at, "d"), "good", true}, {filepath.Join(cache, "linked"), "d/good", true},
		{at, "other", false}, {at, "below", false}, {at, "all", false}, {at, "gone", false}, {at, "chain", false},
	} {
		root, err := os.OpenRoot(c.folder)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		b := hubcache.Of(c.folder)
		fi, err := b.Stat(root, c.name, c.name, errRefused)
		file, err2 := b.Open(root, c.name, c.name, os.O_RDONLY, errRefused)
		if (err == nil) != c.good || (err2 == nil) != c.good || c.good && fi.Size() != int64(len("blobs/sha")) {
			t.Errorf("%s in %s: %v, %v, want %v", c.name, c.folder, err, err2, c.good)
		}
		if err2 == nil {
			file.Close()
		}
	}
	for _, folder := range []string{set, cache, filepath.Join(set, "blobs"), filepath.Join(set, "snapshots"), "none"} {
		if b := hubcache.Of(folder); b != nil {
			t.Errorf("%s is in a snapshot", folder)
		}
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var none *hubcache.Blobs
	if _, err := none.Stat(root, "good", "good", errRefused); !errors.Is(err, errRefused) {
		t.Error(err)
	}
}
