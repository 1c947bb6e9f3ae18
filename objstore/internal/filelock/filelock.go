// Package filelock locks open files across processes, with flock on Unix and LockFileEx on Windows.
//
// A lock belongs to the descriptor it was taken on, so it also excludes other descriptors of the
// same process. It ends when that descriptor is unlocked or its process ends. A file whose name was
// removed or given to another file between open and lock protects nothing: see [StillNamed].
package filelock

import (
	"context"
	"math/rand/v2"
	"os"
	"time"
)

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
