// Package filelock locks open files across processes, with flock.
//
// A lock belongs to the descriptor it was taken on, so it also excludes other descriptors of the
// same process. It ends when that descriptor is unlocked or its process ends. A file whose name was
// removed or given to another file between open and lock protects nothing: see [StillNamed].
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"
)

// Open opens a file below root for reading and writing, with further flags and the permissions for
// a new file, and locks it. The file is nil if another descriptor holds a conflicting lock, or if
// the name was removed or given to another file meanwhile. It is an error if the name belongs to
// something else than a regular file. The caller calls [Release].
func Open(root *os.Root, name string, flag int, mode fs.FileMode, exclusive bool) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDWR|OpenNonblock|flag, mode)
	if err != nil {
		return nil, err
	}
	held, err := Try(file, exclusive)
	if err == nil && held {
		if StillNamed(root, name, file) {
			return file, nil
		}
		if fi, statErr := root.Lstat(name); statErr == nil && !fi.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file; remove it", name)
		}
	}
	return nil, errors.Join(err, Release(file))
}

// Wait calls Open until the lock is held, as [Poll] does.
func Wait(ctx context.Context, root *os.Root, name string, mode fs.FileMode,
	exclusive bool) (file *os.File, err error) {
	err = Poll(ctx, 50*time.Microsecond, 5*time.Millisecond, func() (bool, error) {
		file, err = Open(root, name, os.O_CREATE, mode, exclusive)
		return file != nil, err
	})
	return file, err
}

// Release unlocks and closes a file. It unlocks first, because a forked child holds a copy of the
// descriptor, and with it the lock, until its exec. A nil file is released already.
func Release(file *os.File) error {
	if file == nil {
		return nil
	}
	err := Unlock(file)
	return errors.Join(err, file.Close())
}

// StillNamed reports whether name, below root, leads to the open file.
func StillNamed(root *os.Root, name string, file *os.File) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := root.Lstat(name)
	return err == nil && os.SameFile(open, named)
}

// Poll calls try until it reports true or an error, or ctx ends. Between two calls it sleeps: first
// at the start and twice as long each time up to longest, with jitter so that waiters spread out.
// It replaces a blocking lock, which could not be cancelled.
func Poll(ctx context.Context, first, longest time.Duration, try func() (done bool, err error)) error {
	for pause := first; ; pause = min(2*pause, longest) {
		if done, err := try(); done || err != nil {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
