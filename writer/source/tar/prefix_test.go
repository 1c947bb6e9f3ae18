package tar

import (
	"archive/tar"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source"
)

// TestKeyPrefix: the names of archives tell samples apart whose keys begin again, in parts and in
// runs that continue too, and only then are in the fingerprint.
func TestKeyPrefix(t *testing.T) {
	again := archiveOf(t, []entry{{name: "0.txt"}, {name: "1.txt"}, {name: "link", flag: tar.TypeSymlink}})
	paths := []string{write(t, "a.tar", again), write(t, "b.TAR.gz", again), write(t, "c.v1.tgz", again)}
	opt := Options{KeyPrefix: true}
	all, bad, err := rest(t, open(t, opt, paths...))
	var keys []string
	for _, text := range all {
		key, _, _ := strings.Cut(text, ":")
		keys = append(keys, key)
	}
	if want := "a/0 a/1 b/0 b/1 c.v1/0 c.v1/1"; err != nil || len(bad) != 3 || strings.Join(keys, " ") != want || !strings.Contains(bad[2].Error(), "c.v1/link") {
		t.Errorf("%q, %v, %v, want %s", keys, bad, err, want)
	}
	var parts []string
	for part := range 3 {
		src := open(t, opt, paths...)
		if err := src.Split(part, 3); err != nil {
			t.Fatal(err)
		}
		some, _, _ := rest(t, src)
		parts = append(parts, some...)
	}
	if !slices.Equal(parts, all) {
		t.Errorf("parts: %q, want %q", parts, all)
	}
	src := open(t, opt, paths...)
	if err := src.Seek(t.Context(), "1:1"); err != nil {
		t.Fatal(err)
	}
	if some, _, _ := rest(t, src); !slices.Equal(some, all[3:]) {
		t.Errorf("from the middle: %q, want %q", some, all[3:])
	}
	if open(t, Options{}, paths...).Fingerprint() == src.Fingerprint() {
		t.Error("it is not in the fingerprint")
	}
}

// TestLinkedArchive: the name of a link says that a file without an extension is an archive.
func TestLinkedArchive(t *testing.T) {
	in := given(t, write(t, "a.tar", archiveOf(t, []entry{{name: "0.txt"}})))
	blob := given(t, write(t, "blob", archiveOf(t, []entry{{name: "0.txt"}})))[0]
	blob.Path = "snapshot/b.tar"
	if _, err := New(t.Context(), append(in, blob), Options{}); err != nil {
		t.Error(err)
	}
	for _, bad := range []source.Input{{Store: blob.Store, Name: blob.Name, Path: "blob"}, {Store: blob.Store, Name: "b.tar", As: ".csv"}} {
		if _, err := New(t.Context(), []source.Input{bad}, Options{}); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// TestTrailingDot: a member whose name ends with a dot, which a sample would give back without, is an
// error of its sample, as such files of folders are.
func TestTrailingDot(t *testing.T) {
	all, bad, err := rest(t, open(t, Options{}, write(t, "x.tar", archiveOf(t, []entry{{name: "d/a."}, {name: "b"}, {name: "c..txt"}}))))
	if err != nil || len(all) != 2 || len(bad) != 1 || !errors.Is(bad[0], format.ErrName) || !strings.Contains(bad[0].Error(), `ends with a dot, which tar would give back as "a"`) {
		t.Error(all, bad, err)
	}
}
