package reshard_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// replace puts other bytes in place of an object.
func replace(t *testing.T, s *mem.Store, name string, data []byte) {
	t.Helper()
	if err := s.Delete(t.Context(), name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), s, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestRestoredTables: tables restored from a copy of another generation bring no removed sample
// back. Nothing opens them, reads them or publishes after them.
func TestRestoredTables(t *testing.T) {
	s := packed(t, some(0, 60, 200), small)
	before := open(t, s, reader.Options{}).Info().Tables
	r := run(t, s, reshard.RemoveOptions{}, 5, 6)
	old, _, err := objstore.ReadAll(t.Context(), s, before, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, s, r.Tables, old)
	for what, do := range map[string]func() error{
		"open": func() error { _, err := reader.Open(t.Context(), s, reader.Options{}); return err },
		"open by its name": func() error {
			_, err := reader.Open(t.Context(), s, reader.Options{Generation: names.Generation(r.Tables)})
			return err
		},
		"resume": func() error { _, err := reader.OpenResumed(t.Context(), s, reader.Options{}, before); return err },
		"remove": func() error {
			_, err := reshard.RemoveKeys(t.Context(), s, []string{key(7)}, reshard.RemoveOptions{})
			return err
		},
		"remove by number": func() error { _, err := writer.Remove(t.Context(), s, r.Tables, []uint64{7}); return err },
		"purge":            func() error { _, err := writer.Purge(t.Context(), s, writer.PurgeOptions{}); return err },
	} {
		err := do()
		if !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), r.Tables) ||
			!strings.Contains(err.Error(), "restore") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The other way round: the manifest of before, with tables of now under its name.
	s = packed(t, some(0, 60, 200), small)
	stated, _, err := objstore.ReadAll(t.Context(), s, format.ManifestName, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r = run(t, s, reshard.RemoveOptions{}, 5)
	run(t, s, reshard.RemoveOptions{Restore: true}, 5)
	now, _, err := objstore.ReadAll(t.Context(), s, r.Tables, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, s, format.ManifestName, stated)
	replace(t, s, before, now)
	if _, err := reader.Open(t.Context(), s, reader.Options{}); !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), format.ManifestName) {
		t.Error(err)
	}
}
