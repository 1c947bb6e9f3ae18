// Package build reports the version of this module in the running program.
package build

import (
	"runtime/debug"
	"strings"
	"sync"
)

// Module is the path of this module.
const Module = "github.com/shardtool/shardtool"

// Stamp is the version that the linker sets: -ldflags "-X
// github.com/shardtool/shardtool/internal/sys/build.Stamp=0.1.0". It is empty in programs that
// import the module and in those that `go install` built.
var Stamp string

// Version returns the version of this module in the running program: the stamp, or else what the go
// command recorded, or "dev" where neither is known. It has no leading v, so that a release has one
// name however it was built.
func Version() string {
	if Stamp != "" {
		return strings.TrimPrefix(Stamp, "v")
	}
	if v := recorded(); v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	return "dev"
}

// recorded is the module's version in the build information. A replaced module has the version of
// its replacement, which is empty for a folder.
func recorded() string {
	info := read()
	if info == nil {
		return ""
	}
	if info.Main.Path == Module {
		return info.Main.Version
	}
	return dependency(info, Module)
}

// Dependency returns the version of another module in the running program, empty where it is
// unknown.
func Dependency(path string) string {
	info := read()
	if info == nil {
		return ""
	}
	return dependency(info, path)
}

func dependency(info *debug.BuildInfo, path string) string {
	for _, m := range info.Deps {
		if m.Path != path {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version
	}
	return ""
}

// read parses the build information once: it is long, and every shard needs it.
var read = sync.OnceValue(func() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
})
