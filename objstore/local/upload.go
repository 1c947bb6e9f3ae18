package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// upload is a temporary file that will get a name. It keeps the store's directory open, so that
// Commit ends in the tree in which Create began.
type upload struct {
	store *store
	ctx   context.Context
	name  string
	cond  objstore.Condition

	root *os.Root
	temp string // path of the temporary file
	file *os.File
	back writeback
	err  error // first failure; fs.ErrClosed after the end
}

// Create makes the directories of the name and a temporary file in the last of them. The
// directories stay if the upload is aborted. The mode is 0644 minus the umask. ctx limits the
// entire upload, in addition to the context of Commit.
func (s *store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	u, err := s.create(ctx, name, cond)
	if err != nil {
		return nil, s.fail("put", name, err)
	}
	return u, nil
}

func (s *store) create(ctx context.Context, name string, cond objstore.Condition) (*upload, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir := path.Dir(name)
	root, err := s.makeDirs(dir)
	if err != nil {
		return nil, writeError(err)
	}
	file, temp, err := createTemp(root, dir)
	if err != nil {
		root.Close()
		return nil, writeError(err)
	}
	return &upload{store: s, ctx: ctx, name: name, cond: cond, root: root, temp: temp, file: file}, nil
}

// createTemp creates a temporary file and locks it, so that Sweep knows that it is in use. If a
// sweep removes the file between the two steps, createTemp makes another.
func createTemp(root *os.Root, dir string) (*os.File, string, error) {
	const attempts = 100 // for each, a sweep must hit the same few microseconds
	for range attempts {
		var random [8]byte
		rand.Read(random[:]) // never fails
		temp := path.Join(dir, tempPrefix+hex.EncodeToString(random[:]))
		file, err := root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		held, err := filelock.Try(file, true)
		if errors.Is(err, errors.ErrUnsupported) {
			return file, temp, nil // Sweep cannot lock here either, and then removes nothing
		}
		if err == nil && held && filelock.StillNamed(root, temp, file) {
			return file, temp, nil
		}
		file.Close()
		if err != nil {
			_ = root.Remove(temp)
			return nil, "", err
		}
	}
	return nil, "", errors.New("cannot keep a temporary file: something removes them at once")
}

// Write writes to the file. The first failure is final.
func (u *upload) Write(p []byte) (int, error) {
	u.err = cmp.Or(u.err, u.ctx.Err())
	if u.err != nil {
		return 0, u.fail(u.err)
	}
	n, err := u.file.Write(p)
	u.err = err
	if err == nil && !u.store.opts.NoSync {
		u.back.wrote(u.file, n)
	}
	return n, u.fail(err)
}

// Commit makes the object durable and visible. It holds the lock until the directory is synced, so
// a writer that then loses a condition to this object can rely on it.
func (u *upload) Commit(ctx context.Context) (objstore.Info, error) {
	if u.file == nil {
		return objstore.Info{}, u.fail(fs.ErrClosed)
	}
	info, err := u.commit(ctx)
	if err != nil {
		err = u.fail(writeError(err))
		// Report the cause. Sweep removes a temporary file that Abort cannot remove.
		_ = u.Abort()
		return objstore.Info{}, err
	}
	u.release()
	return info, nil
}

func (u *upload) commit(ctx context.Context) (objstore.Info, error) {
	if err := u.alive(ctx); err != nil {
		return objstore.Info{}, err
	}
	now := time.Now()
	if err := u.stamp(now); err != nil {
		return objstore.Info{}, err
	}
	unlock, err := u.store.lock(ctx, u.root, path.Dir(u.name))
	if err != nil {
		return objstore.Info{}, err
	}
	defer unlock()

	old, err := u.check()
	if err != nil {
		return objstore.Info{}, err
	}
	if old != nil && !now.After(old.ModTime()) {
		// The ETag depends on this time: see Tags in the comment of the package.
		if err := u.stamp(old.ModTime().Add(1)); err != nil {
			return objstore.Info{}, err
		}
	}
	if err := u.alive(ctx); err != nil {
		return objstore.Info{}, err
	}
	if err := u.root.Rename(u.temp, u.name); err != nil {
		return objstore.Info{}, err
	}
	if err := u.store.syncDir(u.root, path.Dir(u.name)); err != nil {
		return objstore.Info{}, u.undo(old, err)
	}
	fi, err := u.file.Stat()
	if err != nil {
		return objstore.Info{}, err
	}
	return infoOf(u.name, fi), nil
}

// check checks the condition and returns the existing file, or nil.
func (u *upload) check() (fs.FileInfo, error) {
	old, err := u.root.Stat(u.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
		if u.cond.IfMatch != "" {
			return nil, fmt.Errorf("%w: it is gone", objstore.ErrChanged)
		}
	case err != nil && !escapes(err):
		return nil, err
	case err == nil && old.IsDir():
		return nil, errors.New("a directory of that name is in the way; choose another name or remove it")
	case u.cond.IfNoneMatch:
		return nil, objstore.ErrExists
	case u.cond.IfMatch != "" && (err != nil || tagOf(old) != u.cond.IfMatch):
		return nil, objstore.ErrChanged
	}
	return old, nil
}

// undo reverts a rename that may not last. If an object was replaced, it is lost, so the new one
// stays.
func (u *upload) undo(old fs.FileInfo, cause error) error {
	if old == nil && u.root.Remove(u.name) == nil {
		return cause
	}
	return fmt.Errorf("the object is in place, but may not survive a power loss: %w", cause)
}

// stamp sets the modification time and then makes bytes and time durable.
func (u *upload) stamp(t time.Time) error {
	if err := u.root.Chtimes(u.temp, t, t); err != nil {
		return err
	}
	if u.store.opts.NoSync {
		return nil
	}
	return u.file.Sync()
}

func (u *upload) alive(ctx context.Context) error {
	return cmp.Or(u.err, u.ctx.Err(), ctx.Err())
}

// Abort removes the temporary file.
func (u *upload) Abort() error {
	if u.file == nil {
		return nil
	}
	err := ignoreMissing(u.root.Remove(u.temp))
	u.release()
	return u.fail(err)
}

// release ends the upload. The file was synced or removed, so its Close has nothing to report.
func (u *upload) release() {
	u.file.Close()
	u.root.Close()
	u.file, u.err = nil, fs.ErrClosed
}

func (u *upload) fail(err error) error { return u.store.fail("put", u.name, err) }
