package main

import (
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
)

// tuneFlags say what a stream may change by itself.
type tuneFlags struct {
	auto            bool
	requests, depth int
}

func (f *tuneFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.requests, "requests", 0, "requests to a remote store in flight, in an order (0: 64 at first, then what store and step need)")
	fl.IntVar(&f.depth, "depth", 0, "batches to read ahead, if the memory allows, in an order (0: what store and step need)")
	fl.BoolVar(&f.auto, "autotune", true, "adapt requests and depth that are 0 to the measured store and step; =false: 64, and as far as the memory goes")
}

// fill checks the flags and puts them into a stream's options.
func (f *tuneFlags) fill(o *reader.StreamOptions) error {
	switch {
	case f.requests < 0:
		return usagef("--requests %d: give a number, or 0 for what store and step need", f.requests)
	case f.depth < 0:
		return usagef("--depth %d: give a number of batches, or 0 for what store and step need", f.depth)
	}
	o.Requests, o.Depth, o.NoAutotune = f.requests, f.depth, !f.auto
	return nil
}
