package source

import (
	"path/filepath"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// Input is one file that a source reads: an object of a store, the local disk's among them. The store is the caller's to close.
type Input struct {
	Store objstore.Store
	Name  string
	// Path is what errors call the file and keys are made of: slashes, without secrets. Default: Name.
	Path string
}

// LocalInput is a file on this machine. A link is followed: caches of downloads are full of them, and a store does not follow those
// that lead out of it. One that is not there is fs.ErrNotExist.
func LocalInput(path string) (Input, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Input{}, err
	}
	store, err := local.New(filepath.Dir(target), local.Options{})
	return Input{Store: store, Name: filepath.Base(target), Path: filepath.ToSlash(path)}, err
}
