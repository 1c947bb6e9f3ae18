package mapped

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/internal/cgroup"
)

// Room returns how many bytes of files the page cache can be expected to keep: half of the memory
// that this process may use. Blocks of larger data leave it before their rows are copied, and each
// copy waits for the disk then.
func Room() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	most := int64(min(info.Totalram, math.MaxInt64>>16) * uint64(info.Unit))
	if _, limit := cgroup.Limits(); limit > 0 {
		most = min(most, limit)
	}
	return most / 2
}

// faults returns how many pages this process has waited for that were not in memory.
func faults() int64 {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return used.Majflt
}
