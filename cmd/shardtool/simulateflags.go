package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader"
)

// squareCost is the default of --square-cost.
const squareCost = 1e-4

type simulateFlags struct {
	walkFlags
	label  string
	json   bool
	square float64 // of the cost of units
}

// walkFlags are the flags of a walk through steps without data, which inspect has too.
type walkFlags struct {
	order  orderFlags
	job    jobFlags
	steps  uint64
	given  string // --worlds
	worlds []int
}

// fill checks the flags and parses --worlds. The order gets the largest of these, unless flags give
// a world size.
func (f *walkFlags) fill() error {
	if err := cmp.Or(f.order.fill(), f.job.fill()); err != nil {
		return err
	}
	for part := range strings.SplitSeq(f.given, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 1<<16 {
			return usagef("--worlds %q: write world sizes such as 1,8,64", f.given)
		}
		f.worlds = append(f.worlds, n)
	}
	if !f.order.changed("world-size") && !f.order.fromEnv { // it determines the lanes of storage order
		f.order.opt.World = slices.Max(f.worlds)
	}
	return nil
}

// jobFlags describe the job.
type jobFlags struct {
	simulate.Job
	tokens    float64 // of a sample
	tokenRate float64
}

func (f *jobFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.RanksPerNode, "ranks-per-node", 8, "ranks that share a node, its network and its cache")
	fl.Float64Var(&f.SamplesPerSecond, "samples-per-second", 0,
		"rate of all ranks together; adds what the store must deliver for it")
	fl.Float64Var(&f.tokenRate, "tokens-per-second", 0, "the same rate in tokens; needs --tokens-per-sample")
	fl.Float64Var(&f.tokens, "tokens-per-sample", 0, "tokens of a sample, for --tokens-per-second")
	titled(cmd, "Nodes")
}

// fill checks the flags and converts a rate of tokens to one of samples.
func (f *jobFlags) fill() error {
	switch {
	case f.RanksPerNode < 1:
		return usagef("--ranks-per-node %d: give 1 or more", f.RanksPerNode)
	case f.SamplesPerSecond < 0 || f.tokenRate < 0 || f.tokens < 0:
		return usagef("rates: give numbers of 0 or more")
	case f.tokenRate > 0 && f.SamplesPerSecond > 0:
		return usagef("--samples-per-second and --tokens-per-second: give one of them")
	case (f.tokenRate > 0) != (f.tokens > 0):
		return usagef("--tokens-per-second and --tokens-per-sample: give both")
	}
	if f.tokenRate > 0 {
		f.SamplesPerSecond = f.tokenRate / f.tokens
	}
	return nil
}

func readLabels(ctx context.Context, ds *reader.Dataset, attribute string) (*uniformity.Labels, error) {
	labels, err := simulate.Labels(ctx, ds, attribute)
	switch {
	case errors.Is(err, simulate.ErrNoAttribute):
		return nil, &exitError{exitNotFound, fmt.Errorf("%w: `shardtool inspect` lists the attributes", err)}
	case errors.Is(err, simulate.ErrTooManyLabels):
		return nil, usagef("--label %s: %w; use an attribute with fewer", attribute, err)
	}
	return labels, err
}
