package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name, membership string
		files            map[string]string
		cpus             float64
		memory           int64
	}{
		{name: "none"},
		{"two", "0::/a/b\n", map[string]string{"a/b/memory.max": "300\n", "a/memory.max": "200\n", "a/cpu.max": "150000 100000\n", "memory.max": "max\n"}, 1.5, 200},
		{"one", "9:cpu,cpuacct:/x\n4:memory:/job/7\n", map[string]string{"memory/job/7/memory.limit_in_bytes": "500\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, 500},
		{"one in a container", "4:memory:/docker/abc\n", map[string]string{"memory/memory.limit_in_bytes": "700\n"}, 0, 700},
		{"both", "4:memory:/\n0::/\n", map[string]string{"memory.max": "90", "memory/memory.limit_in_bytes": "80"}, 0, 80},
		{"above", "1:name=x:/z\n0::/a/b\n", map[string]string{"a/cpu.max": "400000 100000\n", "a/memory.max": "max\n", "a/b/cpu.max": "max 100000\n", "a/b/memory.max": "1073741824\n"}, 4, 1 << 30},
		{"nonsense", ":::\n\n0::../../etc\n", map[string]string{"memory.max": "-", "cpu.max": "a b"}, 0, 0},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if cpus, memory := limits(root, c.membership); cpus != c.cpus || memory != c.memory {
			t.Errorf("%s: %v processors, %d bytes; want %v, %d", c.name, cpus, memory, c.cpus, c.memory)
		}
	}
}
