package main

import (
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/internal/units"
)

// unitFlags are the flags that make positions hold units.
type unitFlags struct {
	pack, bucket uint32
	long         string
	plans        string
}

var unitFlagNames = []string{"pack", "bucket", "by", "long", "unit-window"}

// plansFolder returns the folder for plans: the given one, else the folder in a cache, else the
// user's folder, or "" if there is none.
func plansFolder(given, cache string) string {
	switch {
	case given == "none":
		return ""
	case given != "":
		return given
	case cache != "":
		return filepath.Join(cache, "plans")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "shardtool", "plans")
}

// checkUnits refuses parameters of units that cannot be. A Window of 0 is chosen.
func checkUnits(p units.Params) error {
	p.Window = max(p.Window, 1)
	if err := p.Check(); err != nil {
		return usagef("--%s, --long and --unit-window: %w", p.Kind, err)
	}
	return nil
}
