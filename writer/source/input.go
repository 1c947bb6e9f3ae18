package source

import (
	"path/filepath"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// Input is one file that a source reads: an object of a store, which may be a local folder. The
// caller closes the store.
type Input struct {
	Store objstore.Store
	Name  string
	// Path is the file's name in errors and the source of its keys. It uses slashes and holds no
	// secrets. Default: Name.
	Path string
	// As is the extension that decides how the file is read, such as .jsonl.gz; by default Name
	// decides.
	As string
}

// LocalInput returns the Input of a file on this machine. Links are followed, because download
// caches are full of links that lead out of their folder, which a store does not follow. A missing
// file is fs.ErrNotExist.
func LocalInput(path string) (Input, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Input{}, err
	}
	store, err := local.New(filepath.Dir(target), local.Options{})
	return Input{Store: store, Name: filepath.Base(target), Path: filepath.ToSlash(path)}, err
}
