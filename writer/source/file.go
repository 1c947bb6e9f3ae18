package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/shardtool/shardtool/internal/input/hubcache"
	"github.com/shardtool/shardtool/internal/input/stems"
	"github.com/shardtool/shardtool/objstore"
)

// root is a source folder or a store. os.Root opens names below the folder: a link or a ".." that
// leads out of it fails.
type root struct {
	*os.Root
	path  string
	store objstore.Store
	// blobs are followed by links.
	blobs *hubcache.Blobs
	// before is the beginning of the keys.
	before string
}

// roots holds the source folders, and handles of the subfolders that files were read from recently:
// opening a name below such a handle takes one lookup instead of one per element of the path.
type roots struct {
	list []root

	mu   sync.Mutex
	dirs map[dirName]*dirHandle
}

// dirName is a folder below source number.
type dirName struct {
	number int
	path   string
}

// maxDirs is the number of subfolders that stay open.
const maxDirs = 128

type dirHandle struct {
	open sync.Once // outside the lock: a slow file system opens many at a time
	file *os.File
	fd   uintptr // of file
	err  error

	refs int
	used bool // it is in roots.dirs
}

func (d *dirHandle) close() error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

func openRoots(folders []string) (*roots, error) {
	r := &roots{dirs: map[dirName]*dirHandle{}}
	for _, f := range folders {
		h, err := os.OpenRoot(f)
		if err != nil {
			r.close()
			return nil, err
		}
		r.list = append(r.list, root{Root: h, path: f, blobs: hubcache.Of(f)})
	}
	return r, nil
}

// setPrefixes has the keys of each root begin with its name.
func (r *roots) setPrefixes() error {
	var paths []string
	for i := range r.list {
		paths = append(paths, filepath.ToSlash(r.list[i].path))
	}
	list, err := stems.Apart(paths, ".zip", ".ZIP")
	for i := range list {
		r.list[i].before = list[i] + "/"
	}
	return err
}

func (r *roots) close() error {
	var errs []error
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, d := range r.dirs {
		errs = append(errs, d.close())
		delete(r.dirs, k)
	}
	for _, h := range r.list {
		if h.Root != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}

// dir returns a handle of a folder. The caller must call release after use.
func (r *roots) dir(number int, path string) (d *dirHandle, release func(), err error) {
	name := dirName{number, path}
	r.mu.Lock()
	d = r.dirs[name]
	if d == nil {
		r.evict()
		d = &dirHandle{used: true}
		r.dirs[name] = d
	}
	d.refs++
	r.mu.Unlock()
	release = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if d.refs--; d.refs == 0 && !d.used {
			d.close()
		}
	}
	d.open.Do(func() {
		if d.file, d.err = r.list[number].OpenFile(filepath.FromSlash("./"+path), os.O_RDONLY|openNonblock,
			0); d.err == nil {
			d.fd = d.file.Fd()
		}
	})
	if d.err == nil {
		return d, release, nil
	}
	r.mu.Lock()
	if r.dirs[name] == d { // the next caller may try again
		delete(r.dirs, name)
		d.used = false
	}
	r.mu.Unlock()
	release()
	return nil, nil, d.err
}

// evict drops one handle if there are too many. The last user closes a handle in use.
func (r *roots) evict() {
	if len(r.dirs) < maxDirs {
		return
	}
	for k, d := range r.dirs {
		delete(r.dirs, k)
		if d.used = false; d.refs == 0 {
			d.close()
		}
		return
	}
}

// file is the payload of one file.
type file struct {
	roots *roots
	listed
}

// errChanged means that a file differs from the one that was listed.
var errChanged = errors.New("the file changed while it was packed: pack again when nothing writes to it")

// read is what a file is after it was read.
type read struct{ size, mtime int64 }

// open opens the file. A link may lead to another folder inside the source, which the root can
// decide. open refuses what replaced a file since it was listed, before a read of it can block.
func (f *file) open() (*os.File, error) {
	root, name := f.roots.list[f.root], filepath.FromSlash(dirOf(f.key)+f.name)
	h, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		h, err = root.blobs.Open(root.Root, name, name, os.O_RDONLY|openNonblock, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the file was removed while it was packed: %w", err)
	}
	if err != nil {
		return nil, err
	}
	info, err := h.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w (it is no longer a regular file)", errChanged)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// check fails if the file differs from the one that was listed. Callers check after reading, so
// that any earlier change is found.
func (f *file) check(h *os.File) error {
	info, err := h.Stat()
	if err != nil {
		return err
	}
	return f.same(read{info.Size(), info.ModTime().UnixNano()})
}

func (f *file) same(now read) error {
	if now.size != f.size {
		return fmt.Errorf("%w (it had %d bytes, now %d)", errChanged, f.size, now.size)
	}
	if now.mtime != f.mtime {
		return fmt.Errorf("%w (its modification time changed)", errChanged)
	}
	return nil
}

// ReadInto implements writer.Payload.
func (f *file) ReadInto(_ context.Context, p []byte) error {
	err := f.readInFolder(p)
	if err == nil || errors.Is(err, errChanged) {
		return err
	}
	h, err := f.open() // a link, an error that this explains, or a system without readFile
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := io.ReadFull(h, p); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return f.short()
		}
		return err
	}
	return f.check(h)
}

// readInFolder reads the file through a handle of its folder.
func (f *file) readInFolder(p []byte) error {
	d, release, err := f.roots.dir(f.root, dirOf(f.key))
	if err != nil {
		return err
	}
	defer release()
	now, err := readFile(d.fd, f.name, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return f.short()
	}
	if err != nil {
		return err
	}
	return f.same(now)
}

func (f *file) short() error {
	return fmt.Errorf("%w (it is shorter than the %d bytes it had)", errChanged, f.size)
}

// Open implements writer.Payload.
func (f *file) Open(context.Context) (io.ReadCloser, error) {
	h, err := f.open()
	if err != nil {
		return nil, err
	}
	if err := f.check(h); err != nil {
		h.Close()
		return nil, err
	}
	return &stream{f: f, h: h}, nil
}

// stream reads a file and checks it at the end.
type stream struct {
	f *file
	h *os.File
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.h.Read(p)
	if err == io.EOF {
		if cerr := s.f.check(s.h); cerr != nil {
			err = cerr
		}
	}
	return n, err
}

func (s *stream) Close() error { return s.h.Close() }
