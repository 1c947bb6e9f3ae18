// Package local stores objects as files of a directory. The path of a file is the name of its
// object.
//
// # Writing
//
//	Create   creates dir/.tmp-<16 hex> exclusively and locks it
//	Write    writes to that file
//	Commit   sets the time and syncs; locks dir/.shardtool.lock; checks the condition; renames;
//	         syncs dir; unlocks
//
// So an object is absent, or the old one, or the new one, complete and durable. A process that dies
// leaves at most a temporary file, which List never shows and Traits.Sweep of the store removes;
// the kernel releases its locks. The lock file stays, empty, and is never removed. It lies beside
// the object and not at the top of the store, so that stores opened at different depths of one tree
// exclude each other too. The lock is advisory: only writers that use this package respect it.
//
// share and Exclude of its [objstore.Traits] lock the entire store by dir/.shardtool.users. That
// file exists only while the lock is held, or after a holder was killed. Readers take no lock.
// share makes the directory, and removes it again if it is still empty.
//
// # Names
//
// An element is at most 255 bytes, the limit of file systems. Elements that begin with ".tmp-",
// ".shardtool.lock" and ".shardtool.users" are reserved and refused with [objstore.ErrName].
//
// # Symbolic links
//
// The path of the store's directory may contain symbolic links. Below it every access uses
// [os.Root]: links that stay inside are followed, links that lead outside (or are absolute) are
// refused for reading and writing, even if the tree changes at the same time. List shows links to
// files inside, and does not enter linked directories. Of a snapshot in the cache of the Hugging
// Face Hub, links to the contents beside it, in ../../blobs, are followed for reading.
//
// # Tags
//
// The ETag is made of the file's inode number, size, modification time and status change time, the
// times in nanoseconds. Commit sets the modification time, always later than the time of the object
// it replaces, so two consecutive versions of one name differ on every file system that keeps
// nanoseconds. An ETag could repeat only if an object was deleted between two puts, the inode
// number is reused, the size is equal and the clock was set back to the same nanosecond; or within
// one time step of a file system with coarse times (FAT: 2 s). The status change time detects files
// that other programs rewrote in place and dated back. It also changes on chmod, chown and hard
// links: the ETag is then new although the bytes are the same.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/shardtool/shardtool/internal/input/hubcache"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

const (
	tempPrefix = ".tmp-"
	lockName   = ".shardtool.lock"

	// maxElement is NAME_MAX of Linux and macOS.
	maxElement = 255
)

// Options configure a store. The zero value is the durable one.
type Options struct {
	// NoSync omits every fsync. Commits stay atomic to other processes, but a power failure may
	// lose or tear them. It is for tests, and for caches that verify what they read.
	NoSync bool
}

// store is a store in a directory.
type store struct {
	dir     string // absolute
	address string // as the user wrote it
	opts    Options
	blobs   *hubcache.Blobs // nil outside the cache of the Hub

	// mkdir serialises the creation of directories, so that nobody uses one whose fsync is
	// outstanding.
	mkdir sync.Mutex
	// turn is held by the goroutine that waits for a lock file or holds it, so that the others
	// queue here instead of polling.
	turn chan struct{}
}

// New returns the store in dir. A missing directory is an empty store: reads return
// [fs.ErrNotExist], List yields nothing, and Create makes the directory with its parents. New
// refuses a dir that is not a directory.
//
// The store holds no file descriptor between calls and needs no closing. The directory may be
// removed and made again at any time. A handle keeps reading its file after the object was replaced
// or deleted. A deletion is not synced: after a power failure the object may exist again.
func New(dir string, opts Options) (objstore.Store, error) {
	if dir == "" {
		return nil, errors.New("open: the path is empty; give a directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	switch fi, err := os.Stat(abs); {
	case err == nil && !fi.IsDir():
		return nil, fmt.Errorf("open %s: %w; give the directory that holds the data set", dir, syscall.ENOTDIR)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open: %w", err)
	}
	return &store{dir: abs, address: dir, opts: opts, turn: make(chan struct{}, 1), blobs: hubcache.Of(abs)}, nil
}

// Traits returns the store's locks and its Sweep.
func (s *store) Traits() objstore.Traits {
	return objstore.Traits{Share: s.share, Exclude: s.exclude, Sweep: s.sweep, ListAll: s.listAll}
}

// String returns the directory as it was given to New.
func (s *store) String() string { return s.address }

// Open opens the file. The handle keeps reading that file after the object is replaced or deleted.
// A directory is not an object: fs.ErrNotExist.
func (s *store) Open(ctx context.Context, name string) (objstore.Object, error) {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return nil, s.fail("get", name, err)
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
	if err != nil && escapes(err) {
		file, err = s.blobs.Open(root, name, name, os.O_RDONLY|filelock.OpenNonblock, err)
	}
	if err != nil {
		return nil, s.fail("get", name, readError(err))
	}
	fi, err := file.Stat()
	if err == nil {
		err = checkRegular(fi)
	}
	if err != nil {
		file.Close()
		return nil, s.fail("get", name, err)
	}
	return &object{store: s, file: file, info: infoOf(name, fi)}, nil
}

// Stat describes an object.
func (s *store) Stat(ctx context.Context, name string) (objstore.Info, error) {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return objstore.Info{}, s.fail("stat", name, err)
	}
	defer root.Close()
	fi, err := root.Stat(name)
	if err != nil && escapes(err) {
		fi, err = s.blobs.Stat(root, name, name, err)
	}
	if err == nil {
		err = checkRegular(fi)
	}
	if err != nil {
		return objstore.Info{}, s.fail("stat", name, readError(err))
	}
	return infoOf(name, fi), nil
}

// Delete removes the file, never a directory. It waits for a commit in the same directory. The
// removal is not synced: after a power failure the object may exist again.
func (s *store) Delete(ctx context.Context, name string) error {
	return s.fail("delete", name, ignoreMissing(s.delete(ctx, name)))
}

func (s *store) delete(ctx context.Context, name string) error {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return err
	}
	defer root.Close()
	// Root.Remove would also remove an empty directory, which is not an object.
	if fi, err := root.Lstat(name); err != nil || fi.IsDir() {
		return readError(err)
	}
	unlock, err := s.lock(ctx, root, path.Dir(name))
	if err != nil {
		return err
	}
	defer unlock()
	return readError(root.Remove(name))
}

// errNoDirectory is the error of a store whose directory is missing.
var errNoDirectory error = noDirectory{}

type noDirectory struct{}

func (noDirectory) Error() string { return "there is no such directory" }

func (noDirectory) Is(target error) bool { return target == fs.ErrNotExist }

// rootFor checks the name and opens the store's directory. The caller closes the root.
func (s *store) rootFor(ctx context.Context, name string) (*os.Root, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoDirectory
	}
	return root, err
}

func (s *store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}

// checkName checks the rules of every store and of this one.
func checkName(name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > maxElement {
			return fmt.Errorf("%w: the element %.20s… has %d bytes, a file system takes at most %d",
				objstore.ErrName, element, len(element), maxElement)
		}
		if reserved(element) {
			return fmt.Errorf("%w: the element %s is reserved for the store's own files", objstore.ErrName, element)
		}
	}
	return nil
}

// reserved reports whether an element of a path is reserved for temporary files and locks.
func reserved(element string) bool {
	return strings.HasPrefix(element, tempPrefix) || element == lockName || element == holdName
}

func checkRegular(fi fs.FileInfo) error {
	switch {
	case fi.Mode().IsRegular():
		return nil
	case fi.IsDir():
		return fmt.Errorf("it is a directory, not an object: %w", fs.ErrNotExist)
	}
	return fmt.Errorf("it is not a regular file (%s)", fi.Mode().Type())
}
