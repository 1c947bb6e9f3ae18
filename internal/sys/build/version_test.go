package build

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	defer func(stamp string, was func() *debug.BuildInfo) { Stamp, read = stamp, was }(Stamp, read)
	other := debug.Module{Path: "example.org/trainer", Version: "v9.9.9"}
	for _, c := range []struct {
		name, stamp string
		info        *debug.BuildInfo
		want        string
	}{
		{"linked", "0.1.0", nil, "0.1.0"},
		{"linked with a v", "v0.1.0", &debug.BuildInfo{Main: debug.Module{Path: Module, Version: "(devel)"}}, "0.1.0"},
		{"installed", "", &debug.BuildInfo{Main: debug.Module{Path: Module, Version: "v0.1.0"}}, "0.1.0"},
		{"go build", "", &debug.BuildInfo{Main: debug.Module{Path: Module, Version: "(devel)"}}, "dev"},
		{"a library", "", &debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: Module, Version: "v0.2.0"}}}, "0.2.0"},
		{"a folder", "", &debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: Module, Version: "v0.2.0", Replace: &debug.Module{Path: "../x"}}}}, "dev"},
		{"no information", "", nil, "dev"},
		{"not in it", "", &debug.BuildInfo{Main: other}, "dev"},
	} {
		Stamp, read = c.stamp, func() *debug.BuildInfo { return c.info }
		if got := Version(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
