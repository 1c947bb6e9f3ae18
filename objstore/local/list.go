package local

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// List yields the objects of the tree. It reads one directory at a time and may miss objects that
// are put or deleted meanwhile. It leaves out files with invalid names, links that lead outside and
// other files that are not regular. A missing directory has no objects.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.list(ctx, prefix, false)
}

// listAll implements objstore.Traits.ListAll.
func (s *store) listAll(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.list(ctx, prefix, true)
}

func (s *store) list(ctx context.Context, prefix string, all bool) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		err := s.walk(ctx, prefix, func(dir *os.Root, name string, entry fs.DirEntry) error {
			if !strings.HasPrefix(name, prefix) || reserved(entry.Name()) || !all && checkName(name) != nil {
				return nil
			}
			fi, err := dir.Stat(entry.Name())
			link := entry.Type()&fs.ModeSymlink != 0
			if err != nil && link && escapes(err) {
				fi, err = s.blobs.Stat(dir, entry.Name(), name, err)
			}
			info := objstore.Info{Name: name, Size: -1}
			switch {
			case err != nil && link:
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed meanwhile
			case err != nil:
				return err
			case fi.Mode().IsRegular():
				info = infoOf(name, fi)
			}
			if (all || info.Size >= 0) && !yield(info, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(objstore.Info{}, s.fail("list", prefix, err))
		}
	}
}

// errStop ends a walk whose consumer has stopped.
var errStop = errors.New("stop")

// visitor receives one file: its directory, its name relative to the store, its entry.
type visitor func(dir *os.Root, name string, entry fs.DirEntry) error

// walk visits every file whose name could begin with prefix, including the store's own files, in
// ascending byte order of names. It never leaves the tree and follows no links.
func (s *store) walk(ctx context.Context, prefix string, visit visitor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer root.Close()
	w := walker{ctx: ctx, prefix: prefix, visit: visit}
	slash := strings.LastIndexByte(prefix, '/')
	if slash < 0 {
		return w.directory(root, "")
	}
	// Open the directories in the prefix directly, because their siblings may be many.
	at := prefix[:slash]
	if objstore.CheckName(at) != nil {
		return nil // no name begins with an invalid one
	}
	for end := range len(prefix) {
		if prefix[end] != '/' {
			continue
		}
		if fi, err := root.Lstat(prefix[:end]); err != nil || !fi.IsDir() {
			return ignoreMissing(readError(err))
		}
	}
	return w.enter(root, at, at+"/")
}

type walker struct {
	ctx    context.Context
	prefix string
	visit  visitor
}

// enter walks a directory below dir. A directory that was removed meanwhile is empty.
func (w *walker) enter(dir *os.Root, path, name string) error {
	sub, err := dir.OpenRoot(path)
	if err != nil {
		return ignoreMissing(readError(err))
	}
	defer sub.Close()
	return w.directory(sub, name)
}

// directory walks one directory, whose name is empty or ends in a slash.
func (w *walker) directory(dir *os.Root, name string) error {
	entries, err := readDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, entry := range entries {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		full := name + entry.Name()
		if !entry.IsDir() {
			err = w.visit(dir, full, entry)
		} else if !reserved(entry.Name()) && overlap(full+"/", w.prefix) {
			err = w.enter(dir, entry.Name(), full+"/")
			if full == "lost+found" && errors.Is(err, fs.ErrPermission) {
				err = nil // belongs to the file system when the store is a mount point
			}
		}
		if err != nil {
			return err
		}
	}
	return w.ctx.Err()
}

// readDir returns the entries in the order of the names they contribute. A directory contributes
// names that continue with a slash, so "a.tar" precedes the contents of "a".
func readDir(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortKey(a), sortKey(b)) })
	return entries, nil
}

func sortKey(entry fs.DirEntry) string {
	if entry.IsDir() {
		return entry.Name() + "/"
	}
	return entry.Name()
}

// overlap reports whether names that begin with dir can begin with prefix.
func overlap(dir, prefix string) bool {
	return strings.HasPrefix(dir, prefix) || strings.HasPrefix(prefix, dir)
}
