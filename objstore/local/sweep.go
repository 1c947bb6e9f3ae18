package local

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// sweep removes the temporary files of uploads whose process died, if they were last written more
// than olderThan ago. It returns their number. It never removes a file that a live upload of any
// process holds, whatever its age. On a file system without locks it cannot know that, and fails.
func (s *store) sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
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
	// Open for writing, because NFS gives exclusive locks only to writers.
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
	defer func() { _ = filelock.Unlock(file) }() // Close, which follows, releases it too
	// If its upload ended between open and lock, the name is gone for good.
	if err := dir.Remove(name); err != nil {
		return false, err
	}
	return true, nil
}
