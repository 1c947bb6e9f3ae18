package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// Names in a cache folder.
const (
	stateName   = ".shardtool-cache"
	aliveName   = ".alive"
	groupPrefix = "d-"
	liveName    = ".live"

	groupHash = 8  // bytes of the address's hash in the name of a group
	nameHash  = 20 // bytes of the identity in the name of a file
	tempHash  = 8
	buckets   = 256

	// Only users who can read the source may read the cached bytes, so other users of the host get
	// no access.
	dirMode  = 0o700
	fileMode = 0o600
)

// isHex reports whether s is the hex form of n bytes.
func isHex(s string, n int) bool {
	if len(s) != 2*n {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

func isGroup(name string) bool {
	hash, ok := strings.CutPrefix(name, groupPrefix)
	return ok && isHex(hash, groupHash)
}

func isBucket(name string) bool { return isHex(name, 1) }

// isPiece reports whether name is the name of a cached range.
func isPiece(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || !isHex(parts[0], nameHash) {
		return false
	}
	for _, number := range parts[1:] {
		if number == "" || len(number) > 16 || strings.Trim(number, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}

func isOwn(name string) bool {
	return name == stateName || name == aliveName || name == tempDir || isGroup(name)
}

// openFolder opens the folder, and creates it if needed. It returns an error for a wrong argument.
// After a failure of the disk the cache is left without a folder, or read-only.
func (c *Cache) openFolder() error {
	switch fi, err := os.Stat(c.dir); {
	case err == nil && !fi.IsDir():
		return fmt.Errorf("cache %s: %w; give a folder", c.dir, syscall.ENOTDIR)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("cache %s: a file is where the folder should be; give another folder", c.dir)
	}
	if err := os.MkdirAll(c.dir, dirMode); err != nil {
		c.cannotWrite(err)
		return nil
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		c.cannotWrite(err)
		return nil
	}
	if err := checkOwn(root); err != nil {
		root.Close()
		if errors.Is(err, errForeign) {
			return fmt.Errorf("cache %s: %w; give an empty folder, or one that is a cache already", c.dir, err)
		}
		c.cannotRead(".", err)
		return nil
	}
	c.root = root
	return nil
}

var errForeign = errors.New("the folder is not a cache and contains other files")

// checkOwn returns an error that wraps errForeign if the folder is not marked as a cache and holds
// a file that may belong to somebody else.
func checkOwn(root *os.Root) error {
	if _, ok := regular(root, stateName); ok {
		return nil
	}
	all, err := names(root, ".")
	for _, name := range all {
		if !isOwn(name) && name != "lost+found" {
			return fmt.Errorf("%w (%s)", errForeign, name)
		}
	}
	return err
}

// names returns the names in a directory of the folder. A missing directory, or a file or a link in
// its place, has none.
func names(root *os.Root, dir string) ([]string, error) {
	if fi, err := root.Lstat(dir); err != nil || !fi.IsDir() {
		return nil, ignoreMissing(err)
	}
	d, err := root.Open(dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// pieces returns the cached ranges in a directory by name. It opens the directory once, because
// each path takes several system calls.
func (c *Cache) pieces(dir string) (map[string]fs.FileInfo, error) {
	all, err := names(c.root, dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	in, err := c.root.OpenRoot(dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	defer in.Close()
	found := make(map[string]fs.FileInfo, len(all))
	for _, name := range all {
		if !isPiece(name) {
			continue
		}
		if fi, ok := regular(in, name); ok {
			found[path.Join(dir, name)] = fi
		}
	}
	return found, nil
}

// regular returns the description of a file if it is a regular file.
func regular(root *os.Root, name string) (fs.FileInfo, bool) {
	fi, err := root.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() {
		return nil, false
	}
	return fi, true
}

// makeParent makes the directory of a file.
func (c *Cache) makeParent(name string) error {
	dir := path.Dir(name)
	if fi, err := c.root.Lstat(dir); err == nil && fi.IsDir() {
		return nil
	}
	return c.root.MkdirAll(dir, dirMode)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// own reports whether the cache made a file. The caller has checked its path against the patterns
// above; own checks that it begins with the magic, or with zeros if the magic was lost in a power
// failure.
func (c *Cache) own(name string) bool {
	file, err := c.root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	var head [len(magic)]byte
	n, err := file.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return string(head[:n]) == magic[:n] || head == [len(magic)]byte{}
}
