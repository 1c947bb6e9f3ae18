package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format/names"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/ledger"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/ranks"
)

// orderFlags are the flags that say which samples come when: the same in every command that asks.
type orderFlags struct {
	opt       reader.StreamOptions
	memory    int64 // shuffle memory
	affinity  string
	tail      string
	limit     int64
	fromEnv   bool
	ins       []string // checkpoint files of ranks
	in        string   // their names, for messages
	view      viewFlags
	changed   func(flag string) bool
	units     unitFlags
	cache     string // folder of --cache, where the command has one
	orderSaid bool   // any flag was given that plain storage order does not have
}

var orderFlagNames = []string{
	"shuffle", "seed", "epoch", "epochs", "global-batch", "rank", "world-size", "shuffle-memory", "whole-shards", "lanes", "run-blocks",
	"delay", "head", "affinity", "tail", "rank-from-env", "checkpoint-in", "where", "keys",
}

func (f *orderFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.opt.Shuffle, "shuffle", false, "shuffle; without it the order is that of storage")
	fl.Uint64Var(&f.opt.Seed, "seed", 0, "seed of the shuffle")
	fl.Uint64Var(&f.opt.Epoch, "epoch", 0, "first epoch")
	fl.Uint64Var(&f.opt.Epochs, "epochs", 1, "epochs from the first on (0: no end)")
	fl.IntVar(&f.opt.GlobalBatch, "global-batch", 256, "samples of a batch over all ranks")
	fl.IntVar(&f.opt.Rank, "rank", 0, "this data-parallel rank, from 0")
	fl.IntVar(&f.opt.World, "world-size", 1, "number of data-parallel ranks")
	fl.BoolVar(&f.fromEnv, "rank-from-env", false, "take rank and world size from torchrun, Slurm, Open MPI or a Kubernetes Indexed Job")
	sizeVar(cmd, &f.memory, "shuffle-memory", order.DefaultMemory, "decoded bytes to shuffle among, over all ranks")
	fl.BoolVar(&f.opt.WholeShards, "whole-shards", false, "read whole shards at a time: for disks that seek, or shards in a cache")
	fl.Uint32Var(&f.opt.Lanes, "lanes", 0, "V: lanes (0: 96, or fewer for a small memory)")
	fl.Uint32Var(&f.opt.RunBlocks, "run-blocks", 0, "E: blocks read together (0: chosen)")
	fl.Uint32Var(&f.opt.Delay, "delay", 0, "W: ticks a run is spread over (0: what the shuffle memory allows)")
	fl.Uint32Var(&f.opt.Head, "head", 0, "H: runs of each lane that the first batch draws from (0: 4)")
	fl.StringVar(&f.affinity, "affinity", "epoch", "epoch: lanes get other data in every epoch; run: the same, for node caches")
	fl.StringVar(&f.tail, "tail", "", "the last batch of an epoch: short, drop, wrap or pad (default: short, or wrap with --epochs 0)")
	fl.Int64Var(&f.limit, "limit", 0, "stop after this many samples of this rank (0: all)")
	f.view.add(cmd)
	f.changed = cmd.Flags().Changed
}

func (f *orderFlags) addCheckpointIn(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.ins, "checkpoint-in", nil, "continue from the checkpoint in this file; given for each rank: from their common step, with the skipped blocks of all")
}

// fill checks the flags and turns them into options.
func (f *orderFlags) fill() error {
	for _, name := range orderFlagNames {
		f.orderSaid = f.orderSaid || f.changed(name)
	}
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
	f.opt.ShuffleMemory = uint64(f.memory)
	f.opt.Affinity, f.opt.Tail = order.Affinity(f.affinity), order.Tail(f.tail)
	if f.opt.Affinity != order.AffinityEpoch && f.opt.Affinity != order.AffinityRun {
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
	case f.opt.Rank < 0 || f.opt.Rank >= f.opt.World:
		return usagef("--rank %d: ranks are 0 to %d with --world-size %d", f.opt.Rank, f.opt.World-1, f.opt.World)
	}
	return f.fillUnits()
}

// open opens the data set; with a checkpoint, the generation that it names, and the checkpoint is
// held against the flags.
func (f *orderFlags) open(ctx context.Context, arg string, opts reader.Options) (*reader.Dataset, error) {
	if f.in == "" {
		ds, err := openDataset(ctx, arg, opts)
		return f.chosen(ctx, ds, err)
	}
	cp, err := f.read()
	if err != nil {
		return nil, err
	}
	if err := f.resume(cp); err != nil {
		return nil, err
	}
	ds, err := openAt(ctx, arg, opts, cp)
	if ds, err = f.chosen(ctx, ds, err); err == nil {
		if err = f.sameWindow(ctx, ds); err != nil {
			ds.Close()
			return nil, err
		}
	}
	return ds, err
}

// chosen has the data set use the view that the flags ask for.
func (f *orderFlags) chosen(ctx context.Context, ds *reader.Dataset, err error) (*reader.Dataset, error) {
	if err != nil {
		return nil, err
	}
	if err := f.view.use(ctx, ds); err != nil {
		ds.Close()
		return nil, err
	}
	return ds, nil
}

// read reads the checkpoints of ranks and the ledgers beside them, and merges them.
func (f *orderFlags) read() (*order.Checkpoint, error) {
	return readSaved(f, readCheckpoint, ledger.Merge)
}

// readSaved is read for checkpoints of a data set or of a mix.
func readSaved[C any](f *orderFlags, read func(file string) (*C, error), merge func(...ledger.Saved[C]) (ledger.Saved[C], error)) (*C, error) {
	saved := make([]ledger.Saved[C], len(f.ins))
	for i, file := range f.ins {
		cp, err := read(file)
		if err != nil {
			return nil, err
		}
		skipped, err := readLedger(file)
		if err != nil {
			return nil, err
		}
		saved[i] = ledger.Saved[C]{Checkpoint: *cp, Skipped: skipped}
	}
	if len(saved) > 1 {
		merged, err := merge(saved...)
		if err != nil {
			return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", f.in, err)}
		}
		saved[0] = merged
	}
	f.opt.Skipped = saved[0].Skipped
	return &saved[0].Checkpoint, nil
}

// resume goes on from a checkpoint, which is held against the flags.
func (f *orderFlags) resume(cp *order.Checkpoint) error {
	if err := f.against(cp); err != nil {
		return &exitError{exitCheckpoint, err}
	}
	f.opt.Checkpoint = cp
	if !f.changed("global-batch") && cp.GlobalBatch > 0 {
		f.opt.GlobalBatch = cp.GlobalBatch
	}
	return nil
}

// openAt opens the generation that a checkpoint names, or that of the argument. Samples that were
// removed since are removed there too: a job that resumes must not deliver them.
func openAt(ctx context.Context, arg string, opts reader.Options, cp *order.Checkpoint) (*reader.Dataset, error) {
	addr, view := cutView(arg)
	store, generation, err := dataset(ctx, addr)
	if err != nil {
		return nil, err
	}
	opts.View = view
	named := names.Generation(cp.Tables)
	if opts.Generation = generation; generation != "" || named == "" {
		return reader.Open(ctx, store, opts)
	}
	now, nowErr := reader.Open(ctx, store, opts)
	if nowErr == nil && now.Info().Tables == cp.Tables {
		return now, nil
	}
	opts.Generation = named
	then, err := reader.Open(ctx, store, opts)
	switch {
	case nowErr != nil: // there is no current generation, or it is damaged
		return then, err
	case errors.Is(err, fs.ErrNotExist):
		// Pruned since, or a copy packed anew: the current generation will do when its content is the
		// same.
		return now, nil
	case err != nil || len(now.Info().Removed) == 0:
		now.Close()
		return then, err
	case then.Digest() == now.Digest():
		then.Close()
		return now, nil
	}
	defer now.Close() // it has more samples
	opts.Removed, err = then.RemovedIn(ctx, now)
	if err != nil || len(opts.Removed) == 0 {
		return then, err
	}
	then.Close()
	return reader.Open(ctx, store, opts)
}

// sameWindow refuses a shuffle memory that makes another window than the checkpoint has. Lanes and
// runs are the checkpoint's, whatever rules chose them: the memory alone then decides the delay.
func (f *orderFlags) sameWindow(ctx context.Context, ds *reader.Dataset) error {
	cp := f.opt.Checkpoint
	if !f.changed("shuffle-memory") || !cp.Shuffle {
		return nil
	}
	table, err := ds.OrderTable(ctx)
	if err != nil {
		return err
	}
	o := f.opt
	o.Shuffle, o.Lanes, o.RunBlocks, o.WholeShards = true, cp.Lanes, cp.RunBlocks, cp.RunBlocks == 0
	asked := cp.Params
	if chosen, err := f.chooseOrder(table, &o); err == nil {
		asked.Delay, asked.Head = chosen.Delay, chosen.Head
	} else { // a memory that is too small for these lanes
		asked.Delay = 0
	}
	if err := cp.Params.Compare(asked); err != nil {
		return &exitError{exitCheckpoint, fmt.Errorf("%s: --shuffle-memory %v: %w", f.in, (*sizeFlag)(&f.memory), err)}
	}
	return nil
}

// usage makes an error one in what the user wrote.
func usage(err error) error { return &exitError{exitUsage, err} }

// against refuses flags that say something else than the checkpoint.
func (f *orderFlags) against(cp *order.Checkpoint) error {
	asked := cp.Params
	set := func(flag string, do func()) {
		if f.changed(flag) {
			do()
		}
	}
	set("shuffle", func() { asked.Shuffle = f.opt.Shuffle })
	set("seed", func() { asked.Seed = f.opt.Seed })
	number := func(flag string, value uint32, to *uint32) {
		if f.changed(flag) && value != 0 { // 0 leaves it to us
			*to = value
		}
	}
	number("lanes", f.opt.Lanes, &asked.Lanes)
	number("run-blocks", f.opt.RunBlocks, &asked.RunBlocks)
	number("delay", f.opt.Delay, &asked.Delay)
	number("head", f.opt.Head, &asked.Head)
	set("affinity", func() { asked.Affinity = f.opt.Affinity })
	set("tail", func() { asked.Tail = f.opt.Tail })
	set("whole-shards", func() {
		if f.opt.WholeShards {
			asked.RunBlocks = 0
		}
	})
	if err := cmp.Or(cp.Params.Compare(asked), f.againstUnits(cp)); err != nil {
		return fmt.Errorf("%s: %w", f.in, err)
	}
	if f.changed("epoch") && f.opt.Epoch > cp.Epoch {
		return fmt.Errorf("%s: it stands in epoch %d, --epoch says to begin with %d", f.in, cp.Epoch, f.opt.Epoch)
	}
	return nil
}

// readCheckpoint reads a checkpoint file.
func readCheckpoint(file string) (*order.Checkpoint, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotFound, fmt.Errorf("no checkpoint %s: start without --checkpoint-in, or name the right file", file)}
		}
		return nil, err
	}
	cp, err := order.DecodeCheckpoint(text)
	if err != nil {
		return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", file, err)}
	}
	return &cp, nil
}

// stream opens the stream that the flags ask for.
func (f *orderFlags) stream(ctx context.Context, ds *reader.Dataset) (*reader.Stream, error) {
	s, err := ds.Stream(ctx, f.opt)
	return s, f.explain(err)
}

// mixAdvice is what to say of an order that mixes little for batches of this size, else "".
func mixAdvice(p order.Params, globalBatch int) string {
	if !p.MixesLittle(globalBatch) {
		return ""
	}
	remedy := "Give more --shuffle-memory, or pack with a smaller --block-size or with --pack-shuffle"
	if p.RunBlocks > 1 { // smaller blocks would be joined again
		remedy = "Give more --shuffle-memory, or a new run --run-blocks 1, or pack with --pack-shuffle"
	}
	return fmt.Sprintf("samples are drawn from V·W = %d runs at a time, fewer than 1.5 times the global batch of %d: if the data is stored class by "+
		"class, the class mix of batches varies more than at random. %s; `shardtool simulate` measures it", p.Window(), globalBatch, remedy)
}

// adviseMix writes that advice where the order begins; one rank's is enough.
func (f *orderFlags) adviseMix(stderr io.Writer, p order.Params) {
	if advice := mixAdvice(p, f.opt.GlobalBatch); advice != "" && f.opt.Rank == 0 {
		fmt.Fprintln(stderr, "shardtool: "+advice)
	}
}

// explain gives an error of the order its exit code, once.
func (f *orderFlags) explain(err error) error {
	_, explained := errors.AsType[*exitError](err)
	switch {
	case explained:
		return err
	case errors.Is(err, order.ErrMismatch):
		return &exitError{exitCheckpoint, fmt.Errorf("%s: %w", f.in, err)}
	case errors.Is(err, reader.ErrOptions):
		return usage(err)
	}
	return err
}

// samples is how many samples this rank gets from here on, of a data set of n: exact up to the last
// batches of epochs, 0 where there is no end.
func (f *orderFlags) samples(n uint64) int64 {
	if cp := f.opt.Checkpoint; cp != nil {
		return f.left(n, cp.Epoch, cp.Position)
	}
	return f.left(n, f.opt.Epoch, 0)
}

// left is samples from a place on.
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

// ended tells whether the epochs that were asked for end before an epoch.
func (f *orderFlags) ended(epoch uint64) bool { return f.opt.Epochs > 0 && epoch >= f.opt.End() }
