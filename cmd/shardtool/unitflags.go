package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/units"
)

// unitFlags are the flags that make positions hold units.
type unitFlags struct {
	pack, bucket uint32
	long         string
	plans        string
}

var unitFlagNames = []string{"pack", "bucket", "by", "long", "unit-window"}

func (f *orderFlags) addUnits(cmd *cobra.Command) {
	fl, u := cmd.Flags(), &f.units
	fl.Uint32Var(&u.pack, "pack", 0, "pack samples into sequences of this many tokens; batches, positions and --limit then count sequences")
	fl.Uint32Var(&u.bucket, "bucket", 0, "form micro-batches of samples of similar length: samples times the longest is at most this; batches, positions and --limit then count micro-batches")
	fl.StringVar(&f.opt.Units.By, "by", "tokens", "the integer attribute with the lengths of samples, for --pack and --bucket")
	fl.StringVar(&u.long, "long", "error", "a sample longer than --pack or --bucket: error, split, truncate or drop")
	fl.Uint32Var(&f.opt.Units.Window, "unit-window", 0, "samples of a lane to form units from together (0: chosen)")
	fl.StringVar(&u.plans, "plans", "", "folder that keeps the plans of epochs and the lengths, for a quick start the next time; none: keep none (default: shardtool/plans in the user's cache folder)")
	titled(cmd, "Sequences and micro-batches")
}

// plansFolder is the folder for plans: the one given, else that of a cache, else that of the user;
// "" where there is none.
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

// fillUnits checks the flags of units and turns them into options.
func (f *orderFlags) fillUnits() error {
	u, p := &f.units, &f.opt.Units
	for _, name := range unitFlagNames {
		f.orderSaid = f.orderSaid || f.changed(name)
	}
	switch {
	case f.changed("pack") && f.changed("bucket"):
		return usagef("--pack and --bucket: give one of them")
	case f.changed("pack"):
		p.Kind, p.Size = units.Pack, u.pack
	case f.changed("bucket"):
		p.Kind, p.Size = units.Bucket, u.bucket
	default:
		for _, name := range unitFlagNames {
			if f.changed(name) && len(f.ins) == 0 {
				return usagef("--%s goes with --pack or --bucket: give one of them too", name)
			}
		}
	}
	f.opt.Tuning.Plans = plansFolder(u.plans, f.cache)
	if p.Kind == "" {
		return nil
	}
	p.Long = units.Long(u.long)
	return checkUnits(*p)
}

// checkUnits refuses parameters of units that cannot be. A Window of 0 is chosen.
func checkUnits(p units.Params) error {
	p.Window = max(p.Window, 1)
	if err := p.Check(); err != nil {
		return usagef("--%s, --long and --unit-window: %w", p.Kind, err)
	}
	return nil
}
