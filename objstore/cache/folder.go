package cache

import (
	"encoding/hex"
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

// The names in a cache folder.
const (
	stateName   = ".shardtool-cache"
	aliveName   = ".alive"
	tempDir     = "tmp"
	groupPrefix = "d-"
	liveName    = ".live"

	groupHash = 8  // bytes of the hash in the name of a group
	nameHash  = 20 // and of the identity in that of a file
	tempHash  = 8
	buckets   = 256

	// What is cached may be secret to those who can read the source only: nobody else on the host gets to see it.
	dirMode  = 0o700
	fileMode = 0o600
)

func appendHex(dst, src []byte) []byte { return hex.AppendEncode(dst, src) }

// isHex reports whether s is what formatting so many bytes in hex gives.
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

// isPiece recognises the name of a kept range.
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

// openFolder opens the folder, making it and marking it as a cache where that is needed. An error is one of the
// arguments; what is wrong with the disk leaves the cache without a folder, or read-only.
func (c *Cache) openFolder() error {
	switch fi, err := os.Stat(c.dir); {
	case err == nil && !fi.IsDir():
		return fmt.Errorf("cache %s: %w; give a folder", c.dir, syscall.ENOTDIR)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("cache %s: a file stands where a folder would be; give another folder", c.dir)
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

var errForeign = errors.New("the folder is not a cache, and has other files in it")

// checkOwn returns an error that wraps errForeign if the folder is not marked as a cache and holds a
// file that may belong to somebody else.
func checkOwn(root *os.Root) error {
	if _, ok := regular(root, stateName); ok {
		return nil
	}
	foreign := ""
	err := eachIn(root, ".", func(name string) bool {
		if !isOwn(name) && name != "lost+found" {
			foreign = name
		}
		return foreign == ""
	})
	if foreign != "" {
		return fmt.Errorf("%w (%s)", errForeign, foreign)
	}
	return err
}

// eachName calls f with the names in a directory of the folder, until it returns false. A directory that is missing, or
// is no directory, has none.
func (c *Cache) eachName(dir string, f func(name string) bool) error {
	if fi, err := c.root.Lstat(dir); err != nil || !fi.IsDir() {
		return ignoreMissing(err) // not through links: what they lead to may be counted already
	}
	return eachIn(c.root, dir, f)
}

// eachPiece calls f with the regular files of a directory that have the names of kept ranges. Names are relative to the
// directory, which is opened once: a path takes several calls of the kernel.
func (c *Cache) eachPiece(dir string, f func(in *os.Root, name string, fi fs.FileInfo) bool) error {
	if fi, err := c.root.Lstat(dir); err != nil || !fi.IsDir() {
		return ignoreMissing(err)
	}
	in, err := c.root.OpenRoot(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer in.Close()
	return eachIn(in, ".", func(name string) bool {
		if !isPiece(name) {
			return true
		}
		fi, ok := regular(in, name)
		return !ok || f(in, name, fi)
	})
}

func eachIn(root *os.Root, dir string, f func(name string) bool) error {
	d, err := root.Open(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if !f(name) {
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// regular returns the description of a file if it is a regular one.
func regular(root *os.Root, name string) (fs.FileInfo, bool) {
	fi, err := root.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() {
		return nil, false
	}
	return fi, true
}

// makeParent makes the directory that a file goes to.
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

// own reports whether a file is one that the cache made: by its path, which the caller took from the patterns above, and
// by its first bytes, which are the magic, or were never written before the power went.
func own(root *os.Root, name string) bool {
	file, err := root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
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
