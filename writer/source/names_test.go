package source_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source"
)

// TestNames: every name that a file system can hold and tar can store survives.
func TestNames(t *testing.T) {
	long := strings.Repeat("n", 240)
	dir := tree(t, "plain.txt", "with space.txt", " lead.txt", "new\nline.txt", "tab\t.t\tx", "quote'\".txt", "back\\slash.txt", "non-utf8-\xff\xfe.b\x80n", "ümlaut/日本.txt",
		"..double.x"[2:], "a..b", "a...", "dots.in.the.middle.tar.gz", "-dash.txt", "*star?.txt", "%41.txt", "~tilde.txt", long+".txt",
		long+"/"+long+"/"+long+".txt", strings.Repeat("d/", 400)+"deep.txt", "x/"+strings.Repeat("e", 150)+"."+strings.Repeat("f", 100), "nul-free\x01\x1f.txt")
	_ = os.Remove(filepath.Join(dir, "a...")) // see TestTrailingDot
	for _, shuffle := range []bool{false, true} {
		set, _ := pack(t, open(t, source.FilesOptions{Shuffle: shuffle}, dir), packOptions())
		sameFiles(t, set, dir)
		if len(set.Samples) < 20 {
			t.Fatal(len(set.Samples))
		}
	}
}

// TestTooLong: a path that no tool could extract is refused by name.
func TestTooLong(t *testing.T) {
	dir := tree(t, "a.txt")
	deep, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	elem := strings.Repeat("q", 200)
	for range 22 { // 22·201 bytes: more than 4,096, so one at a time
		if err := deep.Mkdir(elem, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := deep.OpenRoot(elem)
		deep.Close()
		if err != nil {
			t.Fatal(err)
		}
		deep = next
	}
	err = deep.WriteFile("x.txt", []byte("x"), 0o644)
	deep.Close()
	if err != nil {
		t.Fatal(err)
	}
	src := open(t, source.FilesOptions{}, dir)
	if se := failure(t, src, elem, "longer than 4096"); !errors.Is(se, format.ErrName) {
		t.Fatal(se)
	}
	skips(t, src, []string{"a"}, strings.Repeat(elem+"/", 22)+"x")
}

// TestTrailingDot: the name "a." would come back as "a".
func TestTrailingDot(t *testing.T) {
	for _, name := range []string{"a.", "sub/a.", "a."} {
		dir := tree(t, "b.txt", name)
		src := open(t, source.FilesOptions{}, dir)
		if se := failure(t, src, name, "ends with a dot"); !errors.Is(se, format.ErrName) {
			t.Fatal(se)
		}
		key, _ := format.SplitName([]byte(name))
		skips(t, src, []string{"b"}, string(key))
	}
	// Two dots are a field named ".", which survives.
	set, _ := pack(t, open(t, source.FilesOptions{}, tree(t, "a..", "a.b.")), packOptions())
	expect(t, set, "a .=<a..> b.=<a.b.>")
}
