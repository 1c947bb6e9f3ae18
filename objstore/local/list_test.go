package local

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest"
)

// TestListAll: the list of every name has those that no store accepts, and files that are no
// objects.
func TestListAll(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the names are not those of Windows")
	}
	dir := t.TempDir()
	names := []string{"a/b", "c\\d", "f\ng", "a\\/b", "not utf-8 \xff", "a/gone", "a/folder"}
	for _, name := range names[:5] {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Skip("the file system refuses names: ", err)
		}
	}
	for link, to := range map[string]string{"a/gone": "nowhere", "a/folder": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	store, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	storetest.ListAll(t, store, names)
}
