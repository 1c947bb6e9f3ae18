// Package hubcache follows the links of the Hugging Face Hub's cache on disk, in which a file of a
// data set is a link from its snapshot to its content:
//
//	datasets--ORG--NAME/snapshots/REVISION/data/0.tar -> ../../../blobs/SHA
//
// See "Understand caching" in the documentation of huggingface_hub. A folder in a snapshot, opened
// as an os.Root, does not follow them, because they lead out of it.
package hubcache

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Blobs are the contents beside the snapshot that a folder is in. A nil *Blobs has none.
type Blobs struct{ folder, blobs string }

// Of returns the contents beside the snapshot that a folder is or lies in, nil for other folders.
func Of(folder string) *Blobs {
	full, err := filepath.Abs(folder)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	for at := full; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		if parent := filepath.Dir(at); filepath.Base(parent) == "snapshots" {
			blobs := filepath.Join(filepath.Dir(parent), "blobs")
			if fi, err := os.Lstat(blobs); err == nil && fi.IsDir() {
				return &Blobs{full, blobs}
			}
		}
	}
	return nil
}

// find returns the name of the content to which the link base in dir leads, which is name below the
// folder. Only a link straight to a file of blobs does.
func (b *Blobs) find(dir *os.Root, base, name string) (string, bool) {
	if b == nil {
		return "", false
	}
	to, err := dir.Readlink(base)
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(b.folder, filepath.Dir(filepath.FromSlash(name)), to)
	}
	blob, err := filepath.Rel(b.blobs, to)
	return blob, err == nil && filepath.IsLocal(blob) && blob != "." && !strings.ContainsRune(blob, filepath.Separator)
}

// Stat describes the content of the link base in dir, which is name below the folder. For anything
// else it returns err, with which the root has refused it.
func (b *Blobs) Stat(dir *os.Root, base, name string, err error) (fs.FileInfo, error) {
	return in(b, dir, base, name, err, (*os.Root).Stat)
}

// Open is like Stat and opens the content.
func (b *Blobs) Open(dir *os.Root, base, name string, flag int, err error) (*os.File, error) {
	return in(b, dir, base, name, err,
		func(root *os.Root, blob string) (*os.File, error) { return root.OpenFile(blob, flag, 0) })
}

// in calls use with the folder of the contents and the name of the content there.
func in[T any](b *Blobs, dir *os.Root, base, name string, err error,
	use func(*os.Root, string) (T, error)) (none T, _ error) {
	blob, is := b.find(dir, base, name)
	if !is {
		return none, err
	}
	root, err := os.OpenRoot(b.blobs)
	if err != nil {
		return none, err
	}
	defer root.Close()
	return use(root, blob)
}
