// Package local is the store in a directory: one file an object, its path the object's name.
//
// # Writing
//
//	Create   dir/.tmp-<16 hex>, created exclusively and held by a lock while it is written
//	Write    straight to the file
//	Commit   set the time, fsync; lock dir/.shardtool.lock; check the condition; rename; fsync dir; unlock
//
// So an object is absent, or the old one, or whole and durable. A process that dies leaves at most a temporary file that
// List never shows and [Store.Sweep] removes; the kernel drops its locks. The lock file stays, empty, and is never
// removed: it lies beside the object rather than at the top of the store, so that two stores opened at different depths
// of one tree exclude each other too. It is advisory: only writers that use this package are held off.
//
// [Store.Share] and [Store.Exclude] lock the whole store by dir/.shardtool.users, which is there
// only while someone holds it or was killed while holding it. Readers take no lock.
//
// # Names
//
// An element is at most 255 bytes, as file systems have it. Elements that begin with ".tmp-",
// ".shardtool.lock" and ".shardtool.users" belong to the store and are refused with
// [objstore.ErrName].
//
// # Symbolic links
//
// The store's directory may be reached through symbolic links. Below it everything goes through [os.Root]: a link that
// stays inside is followed, one that leads outside (or is absolute) is refused, for reading and for writing, whoever
// changes the tree meanwhile. List shows links to files inside, and does not descend into linked directories.
//
// # Tags
//
// See [Store.Stat] for what an ETag is made of and when it could repeat.
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

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

const (
	tempPrefix = ".tmp-"
	lockName   = ".shardtool.lock"

	// maxElement is NAME_MAX of Linux, macOS and (in bytes of UTF-8, roughly) Windows.
	maxElement = 255
)

// Options change how a Store works. The zero value is the durable one.
type Options struct {
	// NoSync leaves out every fsync. Commits stay atomic to other processes, but a power loss may take or tear them: for
	// tests, and for caches that check what they read.
	NoSync bool
}

// Store is an [objstore.Store] in a directory. Use [New]. It holds no descriptor between calls, so there is nothing to
// close, and the directory may be removed and made again under it.
type Store struct {
	dir     string // absolute
	address string // as the user wrote it
	opts    Options

	// mkdir serialises the making of directories: nobody builds on one whose fsync is still to come.
	mkdir sync.Mutex
	// turn is held by the goroutine that waits for a lock file or has it: the others queue here, not by polling.
	turn chan struct{}
}

var _ objstore.Store = (*Store)(nil)

// New returns the store in dir. The directory may be missing: reads then answer [fs.ErrNotExist], List yields nothing,
// and Create makes it with its parents. A dir that is there and no directory is refused.
func New(dir string, opts Options) (*Store, error) {
	if dir == "" {
		return nil, errors.New("objstore: open: the path is empty; give a directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("objstore: open %s: %w", dir, err)
	}
	switch fi, err := os.Stat(abs); {
	case err == nil && !fi.IsDir():
		return nil, fmt.Errorf("objstore: open %s: %w; give the directory that holds the data set", dir, syscall.ENOTDIR)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("objstore: open: %w", err)
	}
	return &Store{dir: abs, address: dir, opts: opts, turn: make(chan struct{}, 1)}, nil
}

// Traits returns the store's locks and its Sweep.
func (s *Store) Traits() objstore.Traits {
	return objstore.Traits{Share: s.Share, Exclude: s.Exclude, Sweep: s.Sweep}
}

// String is the directory as it was given to New.
func (s *Store) String() string { return s.address }

// Open opens the file. The handle keeps reading that file after the object is replaced or deleted. A directory of that
// name is no object: fs.ErrNotExist.
func (s *Store) Open(ctx context.Context, name string) (objstore.Object, error) {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return nil, s.fail("get", name, err)
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|filelock.OpenNonblock, 0)
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
//
// The ETag is made of the file's inode number, size, time of modification and time of status change, the times in
// nanoseconds. Commit sets the first time from the clock, always later than that of the object it replaces, so two
// versions that follow each other under one name differ wherever the file system keeps nanoseconds. A tag could repeat
// only where an object was deleted between two puts, the inode number is used again, the size is the same and the clock
// was set back to the very nanosecond; or, on a file system with coarse times (FAT: 2 s), within one of its steps. The
// time of status change tells files that others rewrote in place and then dated back. It also changes on chmod, chown
// and hard links: the tag is then another though the bytes are the same.
func (s *Store) Stat(ctx context.Context, name string) (objstore.Info, error) {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return objstore.Info{}, s.fail("stat", name, err)
	}
	defer root.Close()
	fi, err := root.Stat(name)
	if err == nil {
		err = checkRegular(fi)
	}
	if err != nil {
		return objstore.Info{}, s.fail("stat", name, readError(err))
	}
	return infoOf(name, fi), nil
}

// Delete removes the file, never a directory. It waits for a commit under way in the same directory. The removal is not
// synced: after a power loss the object may be there again.
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.fail("delete", name, ignoreMissing(s.delete(ctx, name)))
}

func (s *Store) delete(ctx context.Context, name string) error {
	root, err := s.rootFor(ctx, name)
	if err != nil {
		return err
	}
	defer root.Close()
	// Root.Remove takes empty directories too, which are no objects.
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

// rootFor checks the name and opens the store's directory. The caller closes the root.
func (s *Store) rootFor(ctx context.Context, name string) (*os.Root, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the directory is missing: %w", fs.ErrNotExist)
	}
	return root, err
}

func (s *Store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}

// checkName adds to the rules of every store those of this one.
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

// reserved reports whether the element of a path belongs to the store: a temporary file or a lock.
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
	return fmt.Errorf("it is no regular file (%s)", fi.Mode().Type())
}

// readError gives the errors of a path that cannot hold an object the meaning they have for a flat store, and says what
// package os's own means.
func readError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("a file stands where a directory would be: %w", fs.ErrNotExist)
	case escapes(err):
		return errors.New("a symbolic link on its path leads out of the store, which is not followed; " +
			"open the directory it leads to, or copy the file in")
	}
	return err
}

// escapes recognises os.errPathEscapes, which has no exported name. A test pins the text to the Go release in use.
func escapes(err error) bool { return strings.HasSuffix(err.Error(), "path escapes from parent") }
