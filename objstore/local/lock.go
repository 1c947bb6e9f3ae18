package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"time"
)

// lock takes the directory's lock, by which checks and renames of all processes follow one another. It waits as long as
// ctx allows. unlock gives it back; so does the kernel when the process dies.
func (s *Store) lock(ctx context.Context, root *os.Root, dir string) (unlock func(), err error) {
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
		// Unlocked, not only closed: a child that is being forked holds a copy of the descriptor until its exec.
		releaseLock(file)
		file.Close()
		<-s.turn
	}, nil
}

// waitLock polls, since a flock that blocks cannot be called off. A holder needs two syncs at most, so the pause grows
// from a fraction of one to about one, with jitter so that waiters do not march in step.
func waitLock(ctx context.Context, root *os.Root, name string) (*os.File, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		file, err := openLock(root, name)
		if err != nil {
			return nil, err
		}
		held, err := tryLock(file, true)
		if err == nil && held && stillNamed(root, name, file) {
			return file, nil
		}
		file.Close()
		if err != nil {
			return nil, noLocks(err)
		}
		if err := wait(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for the lock %s: %w", name, err)
		}
	}
}

// firstPause and longestPause are the pauses of those who poll for a lock.
const firstPause, longestPause = 200 * time.Microsecond, 10 * time.Millisecond

// wait pauses for about that long.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noLocks adds what to do where the file system has no locks.
func noLocks(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("this file system has no locks, which a safe put needs "+
			"(Lustre: mount with -o flock; NFS: without nolock); write elsewhere: %w", err)
	}
	return err
}

// openLock opens the lock file, creating it for all who may write to the directory. Another user's may be readable
// only, which is enough for a lock on everything but NFS.
func openLock(root *os.Root, name string) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		if readable, readErr := root.Open(name); readErr == nil {
			return readable, nil
		}
	}
	return file, err
}
