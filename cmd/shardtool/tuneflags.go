package main

import (
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
)

// tuneFlags set the prefetch parameters of a stream, or leave them to autotuning.
type tuneFlags struct {
	auto            bool
	requests, depth int
}

func (f *tuneFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.requests, "requests", 0,
		"concurrent requests to a remote store, in an order (0: starts at 64, then adapts to store and step)")
	fl.IntVar(&f.depth, "depth", 0, "batches to prefetch, memory permitting, in an order (0: adapts to store and step)")
	fl.BoolVar(&f.auto, "autotune", true,
		"adapt --requests and --depth that are 0 to the measured store and step; with =false: 64, and as many as fit in memory")
	titled(cmd, "Speed and memory")
}

// fill checks the flags and adds them to a stream's options.
func (f *tuneFlags) fill(o *reader.StreamOptions) error {
	switch {
	case f.requests < 0:
		return usagef("--requests %d: give a number, or 0 for what store and step need", f.requests)
	case f.depth < 0:
		return usagef("--depth %d: give a number of batches, or 0 for what store and step need", f.depth)
	}
	o.Tuning.Requests, o.Tuning.Depth, o.Tuning.NoAutotune = f.requests, f.depth, !f.auto
	return nil
}
