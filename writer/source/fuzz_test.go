package source

import (
	"bytes"
	"path"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/internal/input/globs"
)

// FuzzListed: a record of the list decodes to itself and sorts correctly, and damage is an error,
// never a panic.
func FuzzListed(f *testing.F) {
	f.Add(0, "a/b", "jpg", "b.jpg", int64(7), int64(9), "", []byte{}, true)
	f.Add(3, "", "", "x", int64(0), int64(-1), "a problem", []byte("\x00\x00\x00\x00a\x00b\x00c\x001234567"), false)
	f.Fuzz(func(t *testing.T, root int, key, field, name string, size, mtime int64, problem string, raw []byte, shuffle bool) {
		fs := &fileSource{opt: FilesOptions{Shuffle: shuffle, Seed: 1}}
		_, _ = fs.decode(raw)
		if root < 0 || root > 1<<20 || strings.ContainsRune(key+field+name, 0) {
			return // file systems have no such names
		}
		l := listed{root: root, key: key, field: field, name: name, size: size, mtime: mtime, problem: problem}
		rec := fs.encode(nil, &l)
		back, err := fs.decode(rec)
		if err != nil || back != l {
			t.Fatalf("%+v came back as %+v, %v", l, back, err)
		}
		other := l
		other.key += "x"
		if !shuffle && bytes.Compare(rec, fs.encode(nil, &other)) >= 0 {
			t.Fatal("a longer key sorts before")
		}
	})
}

// FuzzGlobs: a valid glob never panics, one without a slash looks at the base name alone, and an
// exclude wins.
func FuzzGlobs(f *testing.F) {
	f.Add("*.jpg", "a/b.jpg")
	f.Add("**/.x/*", ".x/y")
	f.Add("{a,b}[!c]?", "sub/ad")
	f.Fuzz(func(t *testing.T, glob, rel string) {
		rel = path.Clean("/" + rel)[1:]
		if !doublestar.ValidatePattern(glob) || rel == "" {
			return
		}
		in := globs.Choice{Include: []string{glob}}
		if in.TakesHidden(rel) && !strings.Contains(glob, ".") {
			t.Fatal("hidden files by a glob without a dot")
		}
		if !strings.Contains(glob, "/") && in.Takes(rel) != in.Takes("elsewhere/"+path.Base(rel)) {
			t.Fatal("a glob without a slash looks at folders")
		}
		if (globs.Choice{Include: []string{glob}, Exclude: []string{glob}}).Takes(rel) {
			t.Fatal("both included and excluded, and taken")
		}
		if (globs.Choice{Exclude: []string{glob}}).Takes(rel) == in.Takes(rel) {
			t.Fatal("excluding is not the opposite of including")
		}
	})
}
