package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// lock takes the directory's lock, which serialises the checks and renames of all processes. It
// waits until ctx ends. The kernel releases the lock if the process dies.
func (s *store) lock(ctx context.Context, root *os.Root, dir string) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := waitLock(ctx, root, path.Join(dir, lockName))
	if err != nil {
		<-s.turn
		return nil, err
	}
	return func() {
		// Unlock before closing: a forked child holds a copy of the descriptor until its exec.
		_ = filelock.Unlock(file)
		file.Close()
		<-s.turn
	}, nil
}

// waitLock waits for the lock. A holder needs two syncs at most, so the pauses grow from a fraction
// of a sync to about one.
func waitLock(ctx context.Context, root *os.Root, name string) (file *os.File, err error) {
	err = filelock.Poll(ctx, firstPause, longestPause, func() (bool, error) {
		if file, err = openLock(root, name); err != nil {
			return false, err
		}
		held, err := filelock.Try(file, true)
		if err == nil && held && filelock.StillNamed(root, name, file) {
			return true, nil
		}
		file.Close()
		return false, noLocks(err)
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for the lock %s: %w", name, err)
	}
	return file, err
}

// firstPause and longestPause bound the pauses between two attempts to take a lock.
const firstPause, longestPause = 200 * time.Microsecond, 10 * time.Millisecond

// openLock opens the lock file and creates it for everybody who may write to the directory. Another
// user's file may be read-only, which suffices for a lock on everything but NFS.
func openLock(root *os.Root, name string) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		if readable, readErr := root.Open(name); readErr == nil {
			return readable, nil
		}
	}
	return file, err
}
