package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/ranks"
	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
	"github.com/shardtool/shardtool/internal/ledger"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/internal/stats"
	"github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/metrics"
	"github.com/shardtool/shardtool/reshard/curate"
)

// processors is what the affinity and the cgroup leave to this process; serve itself uses fewer.
var processors = runtime.GOMAXPROCS(0)

func runServe(cmd *cobra.Command, fd, parent int, metricsAddr string) error {
	signal.Ignore(os.Interrupt, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	m := serveMeter{addr: metricsAddr, stderr: cmd.ErrOrStderr()}
	defer m.close()
	err := serve.Serve(context.WithoutCancel(cmd.Context()), fd, serve.Options{
		Version: version, Open: m.open, Stream: serveStream, Watch: m.watch, Parent: parent, GiveUp: func() { os.Exit(0) },
		Code: func(err error) int {
			if errors.Is(err, serve.ErrConfig) {
				return exitUsage
			}
			return exitCode(err)
		},
	})
	if errors.Is(err, serve.ErrConfig) {
		return usage(err)
	}
	return err
}

// serveMeter serves metrics of the process, if an address for them was given.
type serveMeter struct {
	addr, url string
	stderr    io.Writer
	collector *metrics.Collector
	stop      func()
}

// open is serveOpen. The first time it begins to listen: the parent hears an error only as an
// answer.
func (m *serveMeter) open(ctx context.Context, q *serve.OpenRequest) (*serve.Opened, error) {
	if m.addr != "" && m.collector == nil {
		listener, err := listenMetrics(ctx, m.addr, metricsPorts)
		if err != nil {
			return nil, err
		}
		m.collector, m.url = metrics.New(), metricsURL(listener)
		m.stop = serveMetrics(listener, m.collector, m.stderr)
	}
	o, err := serveOpen(ctx, q)
	if err == nil {
		o.Metrics = m.url
	}
	return o, err
}

// metricsPorts is how many ports a child tries: more than a host has ranks and loaders of theirs.
const metricsPorts = 64

func (m *serveMeter) watch(s interface{ Stats() stats.Stream }, rank int) (stop func()) {
	if m.collector == nil {
		return func() {}
	}
	return m.collector.Watch(s, rank)
}

func (m *serveMeter) close() {
	if m.stop != nil {
		m.stop()
	}
}

// serveOpen opens the data set of OPEN.
func serveOpen(ctx context.Context, q *serve.OpenRequest) (*serve.Opened, error) {
	memory := q.Memory
	if memory == 0 { // the default
		memory = minMemory
	}
	if err := checkRun(memory, q.Workers); err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(processors)
	if q.Workers == 0 {
		local := q.LocalRanks
		if r, err := ranks.FromEnvironment(os.Getenv); local == 0 && err == nil {
			local = r.LocalWorld
		}
		q.Workers = ranks.Workers(local)
	}
	// Workers decode; one more puts batches together. The rest of the host belongs to the training
	// step and to other ranks.
	runtime.GOMAXPROCS(min(max(processors, q.Workers), q.Workers+1))
	caches := cacheFlags{dir: q.Cache, size: q.CacheSize}
	if caches.size == 0 {
		caches.size = defaultCacheSize
	}
	ctx, c, err := caches.open(ctx)
	if err != nil {
		return nil, err
	}
	closeCache := func() {
		if c != nil {
			closeQuietly(c)
		}
	}
	opts := reader.Options{Workers: q.Workers, Memory: q.Memory}
	if q.Mix != "" || isMix(q.Address) {
		var o *serveMix
		if q.Where != "" || q.Keys != "" {
			err = usagef("where and keys: a mix has them for each source, as members of the source")
		} else {
			o, err = openServeMix(ctx, q)
		}
		if err != nil {
			closeCache()
			return nil, err
		}
		return &serve.Opened{Mix: o.mix(), Workers: q.Workers, Stream: o.stream, Close: func() {
			o.Close()
			closeCache()
		}}, nil
	}
	tables := ""
	if q.Checkpoint != "" {
		saved, err := serveCheckpoint(q.Checkpoint)
		cp, err := ofDataset("resume", saved, err)
		if err != nil {
			closeCache()
			return nil, err
		}
		tables = cp.Tables
	}
	ds, err := openAt(ctx, q.Address, opts, tables)
	if err == nil {
		if err = serveView(ctx, ds, q); err != nil {
			ds.Close()
		}
	}
	if err != nil {
		closeCache()
		return nil, err
	}
	return &serve.Opened{Dataset: ds, Workers: q.Workers, Close: func() {
		ds.Close()
		closeCache()
	}}, nil
}

// serveView has the data set use the view of OPEN.
func serveView(ctx context.Context, ds *reader.Dataset, q *serve.OpenRequest) error {
	choose := viewFlags{keys: q.Keys}
	if q.Where != "" {
		choose.where = []string{q.Where}
	}
	v, err := choose.make(ctx, ds)
	switch {
	case errors.Is(err, curate.ErrSpec):
		return usage(err)
	case errors.Is(err, curate.ErrMissing), errors.Is(err, os.ErrNotExist):
		return &exitError{exitNotFound, err}
	case v == nil || err != nil:
		return err
	}
	return ds.UseView(v)
}

func closeQuietly(c *cache.Cache) {
	if err := c.Close(); err != nil {
		warnings.Warn("closing the cache", "error", err)
	}
}

func serveCheckpoint(text string) (*reader.Checkpoint, error) {
	cp, err := reader.DecodeCheckpoint([]byte(text))
	if err != nil {
		return nil, &exitError{exitCheckpoint, err}
	}
	return &cp, nil
}

// serveStream opens the stream of START. The order flags decide which options bind a stream to its
// checkpoint, and which are compared with it.
func serveStream(ctx context.Context, o *serve.Opened, q *serve.StartRequest, out *serve.Started) (*reader.Stream, error) {
	f, err := serveFlags(q)
	if err != nil {
		return nil, err
	}
	if q.ChangeMix || q.SkipSteps != nil {
		return nil, usagef("change_mix and skip_steps are for mixes")
	}
	if q.Checkpoint != "" {
		saved, err := serveCheckpoint(q.Checkpoint)
		cp, err := ofDataset("resume", saved, err)
		if err != nil {
			return nil, err
		}
		f.opt.Checkpoint = &reader.Checkpoint{Dataset: cp}
	} else if err := f.begin(q.Begin); err != nil {
		return nil, err
	}
	if f.opt.Skipped, err = ledger.Decode([]byte(q.Ledger)); err != nil {
		return nil, &exitError{exitCheckpoint, err}
	}
	q.ChooseRows(&f.opt.Read)
	f.beginAt = q.Begin
	run, err := f.run(ctx, o.Dataset, f.planLines)
	if err != nil {
		return nil, err
	}
	out.Close = func() { run.Close() }
	s, err := run.Stream(ctx, f.opt)
	if err != nil {
		run.Close()
		return nil, f.explain(err)
	}
	at := s.Info()
	f.warnServed(ctx, s)
	out.Rank, out.WorldSize, out.Workers = f.opt.Rank, f.opt.World, f.opt.Workers
	if out.Workers == 0 {
		out.Workers = o.Workers
	}
	limitMemory(at.Memory, 0)
	return s, nil
}

// warnServed warns of a stream that mixes little, in terms of Python.
func (f *orderFlags) warnServed(ctx context.Context, s *reader.Stream) {
	f.warnMixing(ctx, s, func(v mixing.Verdict) {
		warnings.Warn(v.Warning("shuffle_memory='%s'", "shuffle the data when packing it"))
	})
}

// planLines has the parent log a line for the first epoch that is planned, after a second and then
// every ten, if this is rank 0.
func (f *orderFlags) planLines(what string) func(epoch, done, of uint64) {
	if f.opt.Rank > 0 {
		return nil
	}
	return firstPlan(func(of uint64) func(done uint64) {
		var mu sync.Mutex
		due := time.Now().Add(time.Second)
		return func(done uint64) {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); !now.Before(due) && done < of {
				due = now.Add(every)
				warnings.Warn(fmt.Sprintf("%s: %s of %s (%d%%)", what, countText(done), plural(of, "sample"), 100*done/of))
			}
		}
	})
}

// begin moves the first epoch on; nil leaves it.
func (f *orderFlags) begin(epoch *uint64) error {
	if epoch == nil {
		return nil
	}
	end := f.opt.End()
	if f.opt.Epochs > 0 && *epoch >= end {
		return usagef("epoch %d: the epochs asked for end before %d", *epoch, end)
	}
	if f.opt.Epochs > 0 {
		f.opt.Epochs = end - *epoch
	}
	f.opt.Epoch = *epoch
	return nil
}

// serveFlags turns START into the order flags it stands for.
func serveFlags(q *serve.StartRequest) (*orderFlags, error) {
	given := map[string]bool{}
	f := &orderFlags{in: "resume", changed: func(flag string) bool { return given[flag] }}
	o := &f.opt
	set(given, "shuffle", q.Shuffle, &o.Shuffle)
	set(given, "seed", q.Seed, &o.Seed)
	set(given, "epoch", q.Epoch, &o.Epoch)
	set(given, "epochs", q.Epochs, &o.Epochs)
	set(given, "shuffle-memory", q.ShuffleMemory, &o.ShuffleMemory)
	set(given, "whole-shards", q.WholeShards, &o.WholeShards)
	set(given, "lanes", q.Lanes, &o.Lanes)
	set(given, "run-blocks", q.RunBlocks, &o.RunBlocks)
	set(given, "delay", q.Delay, &o.Delay)
	set(given, "head", q.Head, &o.Head)
	set(given, "affinity", q.Affinity, (*string)(&o.Affinity))
	set(given, "tail", q.Tail, (*string)(&o.Tail))
	set(given, "rank", q.Rank, &o.Rank)
	set(given, "world-size", q.WorldSize, &o.World)
	set(given, "global-batch", q.GlobalBatch, &o.GlobalBatch)
	f.memory = int64(min(o.ShuffleMemory, 1<<62))
	switch {
	case q.Rank == nil && q.WorldSize == nil:
		o.World = 1
	case q.Rank == nil || q.WorldSize == nil || o.World < 1 || o.Rank < 0 || o.Rank >= o.World:
		return nil, usagef("rank and world_size: give both, the rank from 0 to one less than the world size, or neither to be the only one")
	}
	if q.BatchSize != nil {
		given["global-batch"] = true
		if o.GlobalBatch = *q.BatchSize * o.World; o.GlobalBatch/o.World != *q.BatchSize {
			return nil, usagef("a batch_size of %d on %d ranks: too large", *q.BatchSize, o.World)
		}
	}
	if err := f.serveUnits(q.Units, given); err != nil {
		return nil, err
	}
	o.Memory, o.Workers, o.Spare = q.Memory, q.Workers, min(max(runtime.GOMAXPROCS(0)-q.Workers, 0), 1)
	tune := tuneFlags{requests: q.Requests, depth: q.Depth, auto: q.Autotune == nil || *q.Autotune}
	if err := tune.fill(o); err != nil {
		return nil, err
	}
	for i := range q.Columns {
		if c := &q.Columns[i]; !c.Optional {
			o.Expect = append(o.Expect, c.Name)
		}
	}
	if q.Units != nil {
		for _, field := range q.Units.Fields {
			o.Expect = append(o.Expect, field.Name)
		}
	}
	switch q.OnError {
	case "", "fail":
	case "skip":
		o.SkipCorrupt, o.MaxSkipped, o.MaxSkippedShare = true, q.MaxSkipped, q.MaxSkippedShare
	default:
		return nil, usagef("on_error %q: use fail or skip", q.OnError)
	}
	return f, nil
}

func set[T any](given map[string]bool, flag string, from, to *T) {
	if from != nil {
		*to, given[flag] = *from, true
	}
}
