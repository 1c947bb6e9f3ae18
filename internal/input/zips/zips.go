// Package zips has the files in a zip archive as a store that is only read, so that an archive is
// packed as a folder or a prefix with the same names is.
package zips

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/pinned"
	"github.com/shardtool/shardtool/internal/input/zipdir"
	"github.com/shardtool/shardtool/objstore"
)

// Bounds of what is held.
const (
	maxDirectory = 512 << 20 // bytes of the list of members, which takes several times as much memory
	window       = 256 << 10 // of an archive, for small reads
	maxWindows   = 32
	// random is the size of a member that is decompressed into memory where it is not read from front
	// to end.
	random = 64 << 20
)

// Store has the members of an archive. It is safe for concurrent use.
type Store struct {
	store objstore.Store // of the archive
	name  string
	path  string // for errors
	ctx   context.Context
	info  objstore.Info
	of    string      // in the ETags of members
	files []*zip.File // by names, which are unlike

	mu      sync.Mutex
	windows map[int64]*part
	recent  []int64
}

// part is a window of the archive.
type part struct {
	read sync.Once
	b    []byte
	err  error
}

// New reads the list of members of the archive name, which errors call path. An archive that is cut,
// or whose members overlap or have one name, wraps format.ErrCorrupt. Members that cannot be read
// are errors when they are opened. ctx bounds the store's life.
func New(ctx context.Context, store objstore.Store, name, path string) (*Store, error) {
	s := &Store{store: store, name: name, path: path, ctx: ctx, windows: map[int64]*part{}}
	return s, s.list()
}

func (s *Store) list() (err error) {
	if s.info, err = s.store.Stat(s.ctx, s.name); err != nil {
		return err
	}
	s.of = cmp.Or(s.info.ETag, fmt.Sprint(s.info.ModTime.UnixNano()))
	const least = 46 // bytes of a member in the list
	r, err := zipdir.Open(readerAt{s}, s.info.Size, maxDirectory/least, maxDirectory)
	if err != nil {
		return err
	}
	s.files = slices.DeleteFunc(r.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/") })
	for _, f := range s.files {
		f.Extra, f.Comment = nil, "" // which hold memory
		name := f.Name
		for strings.HasPrefix(name, "./") {
			name = strings.TrimLeft(name[2:], "/")
		}
		f.Name = name
	}
	slices.SortFunc(s.files, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(s.files); i++ {
		if name := s.files[i].Name; name == s.files[i-1].Name {
			return fmt.Errorf("%w: two members are called %q: unpack it and pack the folder", format.ErrCorrupt, name)
		}
	}
	return nil
}

// file returns a member, or nil.
func (s *Store) file(name string) *zip.File {
	if at, ok := s.search(name); ok {
		return s.files[at]
	}
	return nil
}

func (s *Store) search(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(s.files, name,
		func(f *zip.File, name string) int { return strings.Compare(f.Name, name) })
}

// readerAt reads the archive while its list, or where a member begins, is asked for.
type readerAt struct{ s *Store }

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.s.readAt(r.s.ctx, p, off) }

// read reads a part of the archive, which must be the one that was listed.
func (s *Store) read(ctx context.Context, p []byte, off int64) (err error) {
	defer func() {
		if errors.Is(err, fs.ErrNotExist) { // which says that a member is not there
			err = fmt.Errorf("%w while it was packed: it is gone", objstore.ErrChanged)
		}
	}()
	obj, err := pinned.Reopen(ctx, s.store, s.name, s.info)
	if err != nil {
		return err
	}
	defer obj.Close()
	return obj.ReadAt(ctx, p, off)
}

// readAt is io.ReaderAt. Small reads take windows, which neighbours share.
func (s *Store) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off < 0 || off >= s.info.Size {
		return 0, io.EOF
	}
	p, short := p[:min(int64(len(p)), s.info.Size-off)], off+int64(len(p)) > s.info.Size
	if len(p) > window/2 {
		if err := s.read(ctx, p, off); err != nil {
			return 0, err
		}
		n = len(p)
	}
	for n < len(p) {
		at := (off + int64(n)) / window
		b, err := s.window(ctx, at)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b[off+int64(n)-at*window:])
	}
	if short {
		err = io.EOF
	}
	return n, err
}

func (s *Store) window(ctx context.Context, at int64) ([]byte, error) {
	s.mu.Lock()
	w := s.windows[at]
	if w == nil {
		if len(s.recent) == maxWindows {
			delete(s.windows, s.recent[0])
			s.recent = s.recent[1:]
		}
		w = &part{}
		s.windows[at], s.recent = w, append(s.recent, at)
	}
	s.mu.Unlock()
	w.read.Do(func() {
		w.b = make([]byte, min(window, s.info.Size-at*window))
		w.err = s.read(ctx, w.b, at*window)
	})
	if w.err != nil { // perhaps only of that context
		s.mu.Lock()
		if s.windows[at] == w {
			delete(s.windows, at)
			s.recent = slices.DeleteFunc(s.recent, func(other int64) bool { return other == at })
		}
		s.mu.Unlock()
	}
	return w.b, w.err
}

// describe returns the Info of a member.
func (s *Store) describe(f *zip.File) objstore.Info {
	return objstore.Info{Name: f.Name, Size: int64(f.UncompressedSize64), ETag: fmt.Sprintf("%08x-%s", f.CRC32, s.of),
		ModTime: f.Modified}
}

// Version tells a member apart from others of its name and size by its CRC-32, whatever else
// changes in the archive.
func (s *Store) Version(member objstore.Info) string {
	sum, _, _ := strings.Cut(member.ETag, "-")
	return sum
}

// Open implements objstore.Store.
func (s *Store) Open(ctx context.Context, name string) (objstore.Object, error) {
	f := s.file(name)
	var err error
	switch {
	case f == nil:
		err = fs.ErrNotExist
	case f.Flags&1 != 0:
		err = fmt.Errorf("%w: it is encrypted: unpack the archive with its password, such as with `7z x`, and pack the folder", errors.ErrUnsupported)
	case f.Mode()&fs.ModeType != 0:
		err = fmt.Errorf("%w: it is not a regular file, but %s", errors.ErrUnsupported, f.Mode())
	case f.Method != zip.Store && f.Method != zip.Deflate:
		err = fmt.Errorf("%w: it is compressed by method %d of zip, and methods 0 and 8, stored and deflate, are read: unpack the archive with `7z x` and pack the folder", errors.ErrUnsupported, f.Method)
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		err = fmt.Errorf("%w: it is stored in %d bytes, and states %d", format.ErrCorrupt, f.CompressedSize64,
			f.UncompressedSize64)
	}
	if err != nil {
		return nil, objstore.NewError("get", s.String(), name, err)
	}
	return &Member{s: s, f: f}, nil
}

// Stat implements objstore.Store.
func (s *Store) Stat(_ context.Context, name string) (objstore.Info, error) {
	f := s.file(name)
	if f == nil {
		return objstore.Info{}, objstore.NewError("stat", s.String(), name, fs.ErrNotExist)
	}
	return s.describe(f), nil
}

// List implements objstore.Store. It has all names, as objstore.ListAll does.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		at, _ := s.search(prefix)
		for _, f := range s.files[at:] {
			if !strings.HasPrefix(f.Name, prefix) || !yield(s.describe(f), ctx.Err()) {
				return
			}
		}
	}
}

// Create implements objstore.Store.
func (s *Store) Create(context.Context, string, objstore.Condition) (objstore.Upload, error) {
	return nil, errors.ErrUnsupported
}

// Delete implements objstore.Store.
func (s *Store) Delete(context.Context, string) error { return errors.ErrUnsupported }

// String implements objstore.Store.
func (s *Store) String() string { return s.path }
