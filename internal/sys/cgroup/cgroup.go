// Package cgroup tells what the control groups of this process allow it, of versions 1 and 2.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits returns the tightest limits between the group of this process and the root: processors,
// and bytes of memory, page cache included. 0 is no limit, or an unknown one.
func Limits() (cpus float64, memory int64) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, 0
	}
	return limits("/sys/fs/cgroup", string(text))
}

// limits is Limits for the groups mounted at root. membership is the text of /proc/self/cgroup:
// lines "0::/path" and, for a controller of version 1, "4:memory:/path".
func limits(root, membership string) (cpus float64, memory int64) {
	two, one := "/", "/"
	for line := range strings.Lines(membership) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch kind, path, _ := strings.Cut(rest, ":"); kind {
		case "":
			two = path
		case "memory":
			one = path
		}
	}
	upward(root, two, func(dir string) {
		var quota, period float64
		if text, err := os.ReadFile(filepath.Join(dir, "cpu.max")); err == nil {
			if n, _ := fmt.Sscan(string(text), &quota, &period); n == 2 && period > 0 &&
				(cpus == 0 || quota/period < cpus) {
				cpus = quota / period
			}
		}
		memory = tighter(memory, filepath.Join(dir, "memory.max"))
	})
	upward(filepath.Join(root, "memory"), one, func(dir string) {
		memory = tighter(memory, filepath.Join(dir, "memory.limit_in_bytes"))
	})
	return cpus, memory
}

// upward calls f with the directory of a group and those above it. Within a container the path may
// belong to the host, and only the root is there.
func upward(root, path string, f func(dir string)) {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		f(filepath.Join(root, path))
		if path == "/" {
			return
		}
	}
}

// unlimited is what version 1 writes for no limit, less a page or several.
const unlimited = 1 << 62

// tighter returns the lower of a limit and that in a file.
func tighter(limit int64, file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return limit
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n >= unlimited || limit != 0 && limit <= n {
		return limit
	}
	return n
}
