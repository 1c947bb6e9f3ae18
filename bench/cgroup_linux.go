package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// newCgroup makes a control group whose processes have limit bytes of memory, page cache included.
// Those that end leave it empty, and end removes it.
func newCgroup(limit int64) (dir string, end func(), err error) {
	name := "shardtool-bench-" + strconv.Itoa(os.Getpid())
	var failed []error
	for _, of := range []struct{ root, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, // version 1
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir = filepath.Join(of.root, name)
		if err = os.Mkdir(dir, 0o755); err == nil {
			if err = os.WriteFile(filepath.Join(dir, of.file), []byte(strconv.FormatInt(limit, 10)), 0); err == nil {
				return dir, func() { _ = os.Remove(dir) }, nil
			}
			_ = os.Remove(dir)
		}
		failed = append(failed, err)
	}
	return "", nil, fmt.Errorf("no control group can be made here: %w", errors.Join(failed...))
}
