package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/ranks"
)

// orderFlags are the flags that say which samples come when: the same in every command that asks.
type orderFlags struct {
	opt       reader.StreamOptions
	memory    int64 // shuffle memory
	budget    int64 // --memory, where the command has it
	affinity  string
	tail      string
	limit     int64
	fromEnv   bool
	ins       []string // checkpoint files of ranks
	in        string   // their names, for messages
	view      viewFlags
	changed   func(flag string) bool
	units     unitFlags
	layers    fieldFlags
	mix       mixFlags
	step      uint64
	cache     string // folder of --cache, where the command has one
	orderSaid bool   // any flag was given that plain storage order does not have
}

var orderFlagNames = []string{
	"shuffle", "seed", "epoch", "epochs", "global-batch", "rank", "world-size", "shuffle-memory", "host", "whole-shards",
	"lanes", "run-blocks", "delay", "head", "affinity", "tail", "rank-from-env", "cost", "cost-group",
	"micro-batches", "checkpoint-in",
	"where", "keys",
}

func (f *orderFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.opt.Shuffle, "shuffle", false, "shuffle; without it samples come in storage order")
	fl.Uint64Var(&f.opt.Seed, "seed", 0, "seed of the shuffle")
	fl.Uint64Var(&f.opt.Epoch, "epoch", 0, "first epoch")
	fl.Uint64Var(&f.opt.Epochs, "epochs", 1, "epochs from the first on (0: no end)")
	fl.IntVar(&f.opt.GlobalBatch, "global-batch", 256, "samples of a batch over all ranks")
	sizeVar(cmd, &f.memory, "shuffle-memory", order.DefaultMemory, "decoded bytes to shuffle among, over all ranks")
	fl.BoolVar(&f.opt.Order.Host, "host", false,
		"the ranks of a host share one reader: hold a data set whole that fits --shuffle-memory, so that every rank draws from all of it")
	fl.BoolVar(&f.opt.Order.WholeShards, "whole-shards", false,
		"read whole shards at a time: for disks that seek, or shards in a cache")
	fl.Uint32Var(&f.opt.Order.Lanes, "lanes", 0, "V: lanes (0: 96, or fewer for a small memory)")
	fl.Uint32Var(&f.opt.Order.RunBlocks, "run-blocks", 0, "E: blocks read together (0: chosen)")
	fl.Uint32Var(&f.opt.Order.Delay, "delay", 0, "W: ticks a run is spread over (0: what the shuffle memory allows)")
	fl.Uint32Var(&f.opt.Order.Head, "head", 0, "H: runs of each lane that the first batch draws from (0: 4)")
	fl.StringVar(&f.affinity, "affinity", "epoch",
		"epoch: lanes get other data in every epoch; run: the same, for node caches")
	fl.StringVar(&f.tail, "tail", "",
		"the last batch of an epoch: short, drop, wrap or pad (default: short, or wrap with --epochs 0)")
	fl.Int64Var(&f.limit, "limit", 0, "stop after this many samples of this rank (0: all)")
	titled(cmd, "Order")
	fl.IntVar(&f.opt.Rank, "rank", 0, "this data-parallel rank, from 0")
	fl.IntVar(&f.opt.World, "world-size", 1, "number of data-parallel ranks")
	fl.BoolVar(&f.fromEnv, "rank-from-env", false,
		"take rank and world size from torchrun, Slurm, Open MPI or a Kubernetes Indexed Job")
	fl.StringVar(&f.opt.Cost, "cost", "",
		"what a sample costs, such as 'tokens + 0.35 * patches': an expression over integer attributes; ranks then exchange entries of a batch so that all cost nearly the same")
	fl.IntVar(&f.opt.CostGroup, "cost-group", 0,
		"with --cost: this many consecutive ranks exchange entries, those of a host for example (0: all ranks)")
	fl.IntVar(&f.opt.MicroBatches, "micro-batches", 0,
		"with --cost: order the entries of a rank so that this many consecutive parts of its batch cost nearly the same (0: one)")
	titled(cmd, "Ranks")
	f.view.add(cmd)
	f.changed = cmd.Flags().Changed
}

func (f *orderFlags) addCheckpointIn(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.ins, "checkpoint-in", nil,
		"continue from the checkpoint in this file; given for each rank: from their common step, with the skipped blocks of all")
	titled(cmd, "Checkpoints")
}

// addReading adds the flags of commands that read the samples, which fillReading looks at.
func (f *orderFlags) addReading(cmd *cobra.Command, workers, memory string) {
	cmd.Flags().IntVar(&f.opt.Tuning.Workers, "workers", 0, workers)
	sizeVar(cmd, &f.budget, "memory", 256<<20, memory)
}

// fillReading checks these flags. The order sizes the memory unless the user gives it.
func (f *orderFlags) fillReading() error {
	if f.changed("memory") {
		f.opt.Tuning.Memory = f.budget
	}
	return checkRun(f.budget, f.opt.Tuning.Workers)
}

// fill checks the flags and turns them into options.
func (f *orderFlags) fill() error {
	f.orderSaid = slices.ContainsFunc(slices.Concat(orderFlagNames, unitFlagNames), f.changed)
	f.ins = slices.DeleteFunc(f.ins, func(file string) bool { return file == "" })
	f.in = strings.Join(f.ins, ", ")
	switch {
	case f.limit < 0:
		return usagef("--limit %d: use a number of samples, or 0 for all", f.limit)
	case f.opt.GlobalBatch < 1:
		return usagef("--global-batch %d: a batch has at least 1 sample", f.opt.GlobalBatch)
	case f.memory < 1:
		return usagef("--shuffle-memory: give a size such as 2GiB")
	}
	f.opt.Order.ShuffleMemory = uint64(f.memory)
	f.opt.Order.Affinity, f.opt.Tail = order.Affinity(f.affinity), order.Tail(f.tail)
	if f.opt.Order.Affinity != order.AffinityEpoch && f.opt.Order.Affinity != order.AffinityRun {
		return usagef("--affinity %q: use epoch or run", f.affinity)
	}
	switch f.opt.Tail {
	case "", order.TailShort, order.TailDrop, order.TailWrap, order.TailPad:
	default:
		return usagef("--tail %q: use short, drop, wrap or pad", f.tail)
	}
	if f.fromEnv {
		r, err := ranks.FromEnvironment(os.Getenv)
		if err != nil {
			return usagef("--rank-from-env: %w", err)
		}
		if !f.changed("rank") {
			f.opt.Rank = r.Rank
		}
		if !f.changed("world-size") {
			if r.World == 0 {
				return usagef("--rank-from-env: a %s does not tell its size: give --world-size", r.Launcher)
			}
			f.opt.World = r.World
		}
	}
	switch {
	case f.opt.World < 1:
		return usagef("--world-size %d: there is at least 1 rank", f.opt.World)
	case f.opt.Rank > 0 && !f.fromEnv && !f.changed("world-size"):
		return usagef("--rank %d needs --world-size, the number of ranks", f.opt.Rank)
	case f.opt.Rank < 0 || f.opt.Rank >= f.opt.World:
		return usagef("--rank %d: ranks are 0 to %d with --world-size %d", f.opt.Rank, f.opt.World-1, f.opt.World)
	}
	return f.fillUnits()
}

// read reads the checkpoints of ranks and the ledgers beside them, and merges them.
func (f *orderFlags) read() (*reader.Checkpoint, error) {
	saved := make([]ledger.Saved[reader.Checkpoint], len(f.ins))
	for i, file := range f.ins {
		cp, err := readCheckpoint(file)
		if err != nil {
			return nil, err
		}
		skipped, err := readLedger(file)
		if err != nil {
			return nil, err
		}
		saved[i] = ledger.Saved[reader.Checkpoint]{Checkpoint: *cp, Skipped: skipped}
	}
	if len(saved) > 1 {
		merged, err := reader.Merge(saved...)
		if err != nil {
			return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", f.in, err)}
		}
		saved[0] = merged
	}
	f.opt.Faults.Skipped = saved[0].Skipped
	return &saved[0].Checkpoint, nil
}

// spec returns the run that the flags ask for.
func (f *orderFlags) spec() reader.Spec {
	s := reader.Spec{Order: f.opt.Choice(), Units: f.opt.Units, Epoch: f.opt.Epoch, Said: f.said(), Cost: f.opt.Cost,
		CostGroup: f.opt.CostGroup, MicroBatches: f.opt.MicroBatches}
	if f.opt.Checkpoint != nil && !f.changed("global-batch") {
		s.Order.GlobalBatch = 0
	}
	if f.changed("long") {
		s.Units.Long = units.Long(f.units.long)
	}
	return s
}

// said returns the flags that the user gave.
func (f *orderFlags) said() map[string]bool {
	said := map[string]bool{}
	for _, name := range slices.Concat(orderFlagNames, unitFlagNames) {
		said[name] = f.changed(name)
	}
	return said
}

// readCheckpoint reads a checkpoint file, or the state of a Loader in Python as JSON, which has one.
func readCheckpoint(file string) (*reader.Checkpoint, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotFound,
				fmt.Errorf("no checkpoint %s: start without --checkpoint-in, or name the right file", file)}
		}
		return nil, err
	}
	var state struct{ Checkpoint string }
	if json.Unmarshal(text, &state) == nil && state.Checkpoint != "" {
		text = []byte(state.Checkpoint)
	}
	cp, err := reader.DecodeCheckpoint(text)
	if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
		err = fmt.Errorf("%w: name a file that --checkpoint-out has written", err)
	}
	if err != nil {
		return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", file, err)}
	}
	return &cp, nil
}

// mixAdvice is the warning about an order that mixes little, in terms of the command line.
func mixAdvice(v uniformity.Verdict) string {
	return v.Warning(uniformity.Spelling{Memory: "--shuffle-memory %s", Delay: "--delay",
		Shuffle: "pack with --pack-shuffle"}) + "; `shardtool simulate` measures it"
}

// perHost is how many ranks a host has that its launcher does not tell.
const perHost = 8

// costAdvice returns a warning for rank 0 of a stream whose ranks of several hosts exchange entries
// by their costs. group is how a user spells the option that limits this.
func costAdvice(o *reader.StreamOptions, of *reader.StreamInfo, group string) string {
	near := perHost
	if r, err := ranks.FromEnvironment(os.Getenv); err == nil && r.LocalWorld > 1 {
		near = r.LocalWorld
	}
	if of.Cost == "" || of.CostGroup > 0 || o.Rank > 0 || o.World <= near {
		return ""
	}
	return fmt.Sprintf("all %d ranks exchange entries by their costs, so each of them reads and holds what all need: "+
		"if %d ranks share a host, give "+group, o.World, near, near)
}

// seedAdvice returns a warning for rank 0 of a new run that has a seed and does not say whether it
// shuffles: it does not. said reports which flags or members were given, and shuffle and stored are
// how a user says yes and no.
func seedAdvice(said func(name string) bool, rank int, resumes bool, shuffle, stored string) string {
	if rank > 0 || resumes || !said("seed") || said("shuffle") {
		return ""
	}
	return fmt.Sprintf("a seed is given without %s, so samples come in storage order: give %s, or %s if that is meant",
		shuffle, shuffle, stored)
}

// fetchAdvice returns a warning for rank 0 of a stream whose ranks fetch much of the data set several
// times. remedy is what a user may do.
func fetchAdvice(o *reader.StreamOptions, s *reader.Stream, remedy string) string {
	const most, least = 1.2, 256 << 20
	times, more := s.Fetches()
	if o.Rank > 0 || times <= most || more < least {
		return ""
	}
	return fmt.Sprintf("the %d ranks together fetch about %.1f times what the data set holds, %s of an epoch more than once: %s",
		o.World, times, bytesText(more), remedy)
}

// explain gives an error of the order its exit code, unless it has one.
func (f *orderFlags) explain(err error) error { return explainRun(f.in, err) }

// explainRun gives an error of a run its exit code, unless it has one. in is the checkpoint's name
// in messages.
func explainRun(in string, err error) error {
	_, explained := errors.AsType[*exitError](err)
	count, uncounted := errors.AsType[*reader.CountError](err)
	free, costless := errors.AsType[*reader.CostError](err)
	wrong, isWrong := errors.AsType[*reader.SpecError](err)
	switch {
	case explained:
		return err
	case errors.Is(err, order.ErrMismatch):
		return &exitError{exitCheckpoint, fmt.Errorf("%s: %w", in, err)}
	case uncounted:
		return usagef("%w; pack has --attr %s=len(FIELD)", err, count.Attribute)
	case costless && free.Attribute != "":
		of := free.Attribute + "=COLUMN"
		return usagef("%w; `shardtool layer add DATASET NAME TABLE --key COLUMN --attr %s` makes it in a layer, "+
			"`shardtool pack --attr %s` in the data set", err, of, of)
	case isWrong && wrong.File == "" && wrong.Member != "":
		return usagef("--%s: %w", wrong.Member, wrong.Err)
	case isWrong, errors.Is(err, reader.ErrOptions):
		return usage(err)
	}
	return err
}

// left returns how many samples of a data set of n this rank gets from a place on. The number is
// exact up to the last batches of epochs. It is 0 if the order has no end and no limit is set.
func (f *orderFlags) left(n, epoch, position uint64) int64 {
	if f.opt.Epochs == 0 || n == 0 {
		return f.limit
	}
	if epoch >= f.opt.End() {
		return 0
	}
	left := float64(f.opt.End()-epoch)*float64(n) - float64(position) // epochs may be more than 64 bits of samples
	left = min(left/float64(f.opt.World), 1<<62)
	if f.limit > 0 {
		left = min(left, float64(f.limit))
	}
	return int64(max(left, 1))
}

// ended reports whether the epochs that were asked for end before an epoch.
func (f *orderFlags) ended(epoch uint64) bool { return f.opt.Epochs > 0 && epoch >= f.opt.End() }

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

func (f *orderFlags) addUnits(cmd *cobra.Command) {
	fl, u := cmd.Flags(), &f.units
	fl.Uint32Var(&u.pack, "pack", 0,
		"pack samples into sequences of this many tokens; batches, positions and --limit then count sequences")
	fl.Uint32Var(&u.bucket, "bucket", 0,
		"form micro-batches of samples of similar length: samples times the longest is at most this; batches, positions and --limit then count micro-batches")
	fl.StringVar(&f.opt.Units.By, "by", "tokens",
		"the integer attribute with the lengths of samples, for --pack and --bucket")
	fl.StringVar(&u.long, "long", "error", "a sample longer than --pack or --bucket: error, split, truncate or drop")
	fl.Uint32Var(&f.opt.Units.Window, "unit-window", 0, "samples of a lane to form units from together (0: chosen)")
	fl.StringVar(&u.plans, "plans", "",
		"folder that keeps the plans of epochs and the lengths, for a quick start the next time; none: keep none (default: shardtool/plans in the user's cache folder)")
	titled(cmd, "Sequences and micro-batches")
}

// fillUnits checks the flags of units and turns them into options.
func (f *orderFlags) fillUnits() error {
	u, p := &f.units, &f.opt.Units
	f.opt.Tuning.Plans = plansFolder(u.plans, f.cache)
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
		return nil
	}
	p.Long = units.Long(u.long)
	return checkUnits(*p)
}
