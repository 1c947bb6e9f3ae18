package source_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestManyFolders reads from more folders than stay open, with many workers, and leaves none open.
func TestManyFolders(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(entries)
	}
	dir := t.TempDir()
	for i := range 400 {
		put(t, dir, fmt.Sprintf("d%03d/x.txt", i), fmt.Sprint(i))
		put(t, dir, fmt.Sprintf("d%03d/y.txt", i%7), "shared")
	}
	before := descriptors()
	src, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	opt := packOptions()
	opt.Workers, opt.BlockSize = 16, 4<<10
	most := 0
	opt.Progress = func(writer.Progress) { most = max(most, descriptors()) }
	set, _ := pack(t, src, opt)
	sameFiles(t, set, dir)
	if most > before+200 {
		t.Errorf("%d descriptors were open at once, %d before", most, before)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// TestFolderComesBack: a folder that could not be opened once is tried again.
func TestFolderComesBack(t *testing.T) {
	dir := tree(t, "sub/a.txt", "sub/b.txt")
	src := open(t, source.FilesOptions{}, dir)
	if err := os.Rename(dir+"/sub", dir+"/away"); err != nil {
		t.Fatal(err)
	}
	back := &meddled{Files: src, during: func(string) {}, before: func(key string) {
		if key == "sub/b" {
			if err := os.Rename(dir+"/away", dir+"/sub"); err != nil {
				t.Error(err)
			}
		}
	}}
	opt := packOptions()
	opt.Faults.Skip, opt.Workers = true, 1
	set, res := pack(t, back, opt)
	if res.Skipped != 1 || !slices.Equal(set.Keys(), []string{"sub/b"}) {
		t.Fatalf("%+v %q", res, set.Keys())
	}
}

// TestFolderVanishes: a folder is removed between the listing of its parent and its own listing;
// its files count as never listed.
func TestFolderVanishes(t *testing.T) {
	dir := tree(t, "a.txt", "sub/b.txt", "z.txt")
	src := open(t, source.FilesOptions{Found: func(int64) { _ = os.RemoveAll(dir + "/sub") }}, dir)
	set, _ := pack(t, src, packOptions())
	if !slices.Equal(set.Keys(), []string{"a", "z"}) {
		t.Fatal(set.Keys())
	}
}
