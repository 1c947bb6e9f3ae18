package local

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// Sweep removes the temporary files that uploads left behind when their process died, if nothing was written to them for
// olderThan. It returns how many it removed. A file that a live upload holds, in this process or another, is never
// removed, however old it is; where the file system has no locks that cannot be known, and Sweep fails.
func (s *Store) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	limit := time.Now().Add(-olderThan)
	err = s.walk(ctx, "", func(dir *os.Root, _ string, entry fs.DirEntry) error {
		if !strings.HasPrefix(entry.Name(), tempPrefix) || !entry.Type().IsRegular() {
			return nil
		}
		gone, err := sweepFile(dir, entry.Name(), limit)
		if gone {
			removed++
		}
		return ignoreMissing(err)
	})
	return removed, s.fail("sweep", "", err)
}

func sweepFile(dir *os.Root, name string, limit time.Time) (removed bool, err error) {
	// For writing, since NFS gives exclusive locks to writers alone.
	file, err := dir.OpenFile(name, os.O_RDWR|filelock.OpenNonblock, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	fi, err := file.Stat()
	if err != nil || fi.ModTime().After(limit) {
		return false, err
	}
	held, err := filelock.Try(file, true)
	if err != nil || !held {
		return false, err
	}
	defer filelock.Unlock(file)
	// Its upload may have ended between the open and the lock. Then the name is gone, and it does not come again.
	if err := dir.Remove(name); err != nil {
		return false, err
	}
	return true, nil
}
