package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/bench"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/ranks"
)

// began is approximately when the process started.
var began = time.Now()

type benchFlags struct {
	order    orderFlags
	cache    cacheFlags
	tune     tuneFlags
	step     time.Duration
	batch    int
	ranks    int
	duration time.Duration
	batches  int
	outputFlags
	process bool // this is the process of one rank
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench DATASET|MIX.yaml",
		Short: "Measure what training would wait for, and why",
		Long: `Stream a data set as a training job would, with a step that only takes time, and measure how long each step waits for
its batch. All waiting time has a cause: the table of stalls shows whether the store, the processors or the step itself
limits training. The first batch is reported separately. Nothing is written except the report, and the cache if there
is one. Of a mix the report has the share and the rate of each source too.

With --ranks each rank is a process, as in a job: give the number of ranks of one host.

The figures depend on this machine at this time: on what else runs, and on what the page cache holds. The report names
the host and its limits.`,
		Example: `  shardtool bench s3://bucket/train --shuffle --step 250ms --batch 256 --ranks 8
  shardtool bench out/ --shuffle --step 20ms --json > report.json
  shardtool bench mix.yaml --shuffle --step 250ms --batch 256 --ranks 8`,
		Args: usageArgs(func(cmd *cobra.Command, args []string) error {
			if f.process {
				return nil
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.process {
				return benchRank(cmd)
			}
			return runBench(cmd, args[0], &f)
		},
	}
	f.order.add(cmd)
	f.order.layers.add(cmd)
	f.order.addUnits(cmd)
	f.cache.add(cmd)
	fl := cmd.Flags()
	f.order.addReading(cmd,
		"decode with this many threads per rank (0: the CPUs this process may use, divided by the ranks)",
		"bytes of blocks held and in flight per rank (default: sized by the order)")
	f.tune.add(cmd)
	fl.DurationVar(&f.step, "step", 0,
		"time that the consumer needs for a batch (0: none, to measure the highest rate)")
	fl.IntVar(&f.batch, "batch", 0, "samples of a batch of one rank (0: the global batch divided by the ranks)")
	fl.IntVar(&f.ranks, "ranks", 1,
		"processes, one per rank: --rank and the following ones of --world-size (default: all)")
	fl.DurationVar(&f.duration, "duration", 20*time.Second, "time to measure, from the first batch on")
	fl.IntVar(&f.batches, "batches", 0, "number of batches to measure, instead of a time")
	titled(cmd, "Measuring")
	f.outputFlags.add(cmd, "print as JSON")
	fl.BoolVar(&f.process, "rank-process", false, "run as the process of one rank")
	for _, name := range []string{"rank-process", "epochs", "limit"} { // it ends by --duration
		_ = fl.MarkHidden(name) // fails for an unknown flag
	}
	return cmd
}

// check checks the flags and completes the flags of the order.
func (f *benchFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("epochs") || changed("limit"):
		return usagef("bench has no end but --duration or --batches: leave --epochs and --limit away")
	case f.ranks < 1 || f.ranks > 1024:
		return usagef("--ranks %d: give 1 to 1024", f.ranks)
	case f.step < 0 || f.duration <= 0:
		return usagef("--step and --duration are times such as 20ms, 30s")
	case f.batches < 0 || f.batch < 0:
		return usagef("--batches and --batch are numbers, 0 for none")
	case f.batch > 0 && changed("global-batch"):
		return usagef("--batch and --global-batch set the same value: give one of them")
	}
	if !changed("world-size") && !f.order.fromEnv {
		f.order.opt.World = f.order.opt.Rank + f.ranks
	}
	f.order.cache = f.cache.dir
	if err := cmp.Or(f.tune.fill(&f.order.opt), f.order.fill()); err != nil {
		return err
	}
	if last := f.order.opt.Rank + f.ranks - 1; last >= f.order.opt.World {
		return usagef("--ranks %d from --rank %d on: with --world-size %d ranks end at %d", f.ranks, f.order.opt.Rank,
			f.order.opt.World, f.order.opt.World-1)
	}
	if f.batch > 0 {
		f.order.opt.GlobalBatch = f.batch * f.order.opt.World
	}
	f.order.opt.Epochs = 0
	if f.order.opt.Tuning.Workers == 0 && f.ranks > 1 {
		f.order.opt.Tuning.Workers = ranks.Workers(f.ranks)
	}
	return f.order.fillReading()
}

func (f *benchFlags) setting() bench.Setting {
	s := bench.NewSetting(&f.order.opt)
	s.Resources.Cache, s.Resources.CacheSize = f.cache.dir, f.cache.size
	return s
}

func runBench(cmd *cobra.Command, arg string, f *benchFlags) error {
	ctx := cmd.Context()
	if err := f.check(cmd); err != nil {
		return err
	}
	r := &bench.Report{
		Version: bench.Version, Time: began.UTC(), Tool: version, Host: bench.ThisHost(), Setting: f.setting(),
		StepSeconds: f.step.Seconds(),
	}
	if err := f.describe(ctx, arg, r, cmd.ErrOrStderr()); err != nil {
		return err
	}
	say := func(msg string, args ...any) {
		if !f.quiet {
			fmt.Fprintf(cmd.ErrOrStderr(), msg+"\n", args...)
		}
	}
	say("%s, %s …", plural(f.ranks, "rank"), f.length())
	bar := newBar(cmd.ErrOrStderr(), nil, "measuring", shareOf(1), f.quiet)
	job := bench.Job{
		Read: bench.Read{Address: arg, Layers: f.order.layers.layers, Fields: f.order.layers.fields,
			Where: f.order.view.where, Keys: f.order.view.keys}, Setting: r.Setting, Step: f.step, Duration: f.duration,
		Batches: f.batches,
		Watched: true, Tell: slowest(f.order.opt.Rank, f.ranks, func(share float64) { bar.set(int64(1000*share), "") }),
	}
	command := func(ctx context.Context) *exec.Cmd { return rankProcess(ctx, cmd.ErrOrStderr()) }
	var err error
	r.Ranks, err = bench.Spawn(ctx, command, job, f.order.opt.Rank, f.ranks)
	bar.end()
	if err != nil {
		return rankFailed(err)
	}
	r.Finish()
	if f.json {
		return printJSON(cmd, r)
	}
	return r.Text(cmd.OutOrStdout())
}

func (f *benchFlags) length() string {
	if f.batches > 0 {
		return plural(f.batches, "step")
	}
	return f.duration.String()
}

// describe fills in the data set and the balance of costs, and rejects a data set that no rank
// could read.
func (f *benchFlags) describe(ctx context.Context, arg string, r *bench.Report, stderr io.Writer) error {
	run, err := f.order.openRun(ctx, stderr, arg)
	if err != nil {
		return err
	}
	defer run.Close()
	d := &r.Data
	run.benchData(arg, d)
	if r.Balance, err = run.Run.Balance(ctx, f.order.opt.GlobalBatch, f.order.opt.World, mostBalanced); err != nil {
		return f.order.explain(err)
	}
	if d.Samples == 0 {
		return &exitError{exitNotFound, fmt.Errorf("%s has no samples: nothing to measure", arg)}
	}
	if f.cache.dir == "" {
		return nil
	}
	_, c, err := f.cache.open(ctx)
	if err != nil {
		return err
	}
	d.CacheUsed = c.Stats().Used
	return c.Close()
}

// benchData fills in what a report says about the data of the run.
func (run *openedRun) benchData(arg string, d *bench.Data) {
	*d = bench.Data{Address: objstore.NewAddress(arg).String()}
	var all []byte
	for i, ds := range run.Sources {
		of := bench.SourceData{
			Name: run.Names[i], Address: ds.Store().String(), Generation: ds.Info().Generation,
			Digest:  format.DigestString(ds.Digest()),
			Samples: ds.Selection().Len(), Bytes: ds.Info().Bytes,
		}
		all = fmt.Appendf(all, "%s %s\n", of.Name, of.Digest)
		d.Sources = append(d.Sources, of)
		d.Samples, d.Bytes, d.Decoded = d.Samples+of.Samples, d.Bytes+of.Bytes, d.Decoded+ds.Info().DecodedBytes
		d.Shards, d.Blocks = d.Shards+ds.NumShards(), d.Blocks+ds.Info().Blocks
		d.Requests = max(d.Requests, objstore.TraitsOf(ds.Store()).Requests)
	}
	d.Digest = format.DigestString(format.BlockHash(all))
	d.Remote = d.Requests > 0
	if of := d.Sources[0]; of.Name == "" {
		d.Address, d.Generation, d.Digest, d.Sources = of.Address, of.Generation, run.Sources[0].Info().OrderDigest, nil
	}
}

// rankProcess returns this program as the process of one rank.
func rankProcess(ctx context.Context, stderr io.Writer) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, self, "bench", "--rank-process")
	cmd.Args[0] = os.Args[0]
	if cmd.Stderr = stderr; fileOf(stderr) != nil {
		cmd.Stderr = fileOf(stderr) // the process escapes what it writes there
	}
	return cmd
}

// slowest returns a function for Job.Tell that reports the share of the slowest rank.
func slowest(first, ranks int, tell func(share float64)) func(rank int, share float64) {
	var mu sync.Mutex
	shares := make([]float64, ranks)
	return func(rank int, share float64) {
		mu.Lock()
		defer mu.Unlock()
		shares[rank-first] = share
		tell(slices.Min(shares))
	}
}

// rankFailed returns the error of a rank's process with its exit code.
func rankFailed(err error) error {
	if rank, ok := errors.AsType[*bench.RankError](err); ok && rank.Code > 0 {
		return &exitError{rank.Code, fmt.Errorf("%w: see above", err)}
	}
	return err
}

// benchRank runs as the process of one rank.
func benchRank(cmd *cobra.Command) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	job, err := bench.ReadJob(cmd.InOrStdin(), cancel)
	if err != nil {
		return usagef("--rank-process is for bench itself: %w", err)
	}
	if job.Watched {
		job.Tell = func(_ int, share float64) { bench.WriteShare(cmd.OutOrStdout(), share) }
	}
	var c *cache.Cache
	if own := &job.Setting.Resources; own.Cache != "" {
		f := cacheFlags{own.Cache, own.CacheSize}
		if ctx, c, err = f.open(ctx); err != nil {
			return err
		}
		defer c.Close()
	}
	var in *input
	open := func(ctx context.Context, o reader.StreamOptions) (*reader.Stream, error) {
		read := &job.Read
		f := orderFlags{opt: o, view: viewFlags{read.Where, read.Keys}, layers: fieldFlags{read.Layers, read.Fields},
			changed: func(string) bool { return false }}
		var err error
		if in, err = f.input(ctx, io.Discard, read.Address); err != nil {
			return nil, err
		}
		return in.Stream, nil
	}
	defer func() {
		if in != nil {
			in.Close()
		}
	}()
	r, err := bench.Measure(ctx, open, job, began, func(s *reader.Stream) { limitMemory(s.Info().Memory, 0) })
	if errors.Is(err, reader.ErrOptions) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	if c != nil {
		st := c.Stats()
		r.Work.CacheHits, r.Work.CacheMisses = st.Hits+st.Shared, st.Misses
	}
	return bench.WriteRank(cmd.OutOrStdout(), r)
}
