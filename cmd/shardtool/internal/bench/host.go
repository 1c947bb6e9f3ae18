package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/sys/cgroup"
)

// Host is the machine of a measurement. Fields that are not known are empty or 0. Usable is the
// number of CPUs that this process may use, after affinity and cgroup. CgroupCPU is the tightest
// limit of the group of this process and the groups above it, in CPUs, and CgroupMemory the
// tightest limit of memory. Load is the load average of the minute before the run.
type Host struct {
	Name         string  `json:"name"`
	System       string  `json:"system"`
	Go           string  `json:"go"`
	CPU          string  `json:"cpu,omitempty"`
	CPUs         int     `json:"cpus"`
	Usable       int     `json:"usable_cpus"`
	Memory       int64   `json:"memory_bytes,omitempty"`
	CgroupCPU    float64 `json:"cgroup_cpus,omitempty"`
	CgroupMemory int64   `json:"cgroup_memory_bytes,omitempty"`
	Load         float64 `json:"load"`
}

// ThisHost describes this machine.
func ThisHost() Host {
	h := Host{System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Usable: runtime.GOMAXPROCS(0)}
	h.Name, _ = os.Hostname()
	h.CPU = strings.TrimSpace(field("/proc/cpuinfo", "model name"))
	h.Memory = kib(field("/proc/meminfo", "MemTotal"))
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		h.Load, _ = strconv.ParseFloat(first, 64)
	}
	h.CgroupCPU, h.CgroupMemory = cgroup.Limits()
	return h
}

// residentMost returns the peak memory of this process, 0 where the system does not report it. The
// figure of getrusage includes the parent's, from before exec.
func residentMost() int64 { return kib(field("/proc/self/status", "VmHWM")) }

// field returns the first value of a name in a file of lines "name: value".
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kib parses "123 kB" and returns bytes.
func kib(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
