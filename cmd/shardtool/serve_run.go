package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
)

// processors is the number of CPUs that the affinity and the cgroup leave to this process. serve
// itself uses fewer.
var processors = runtime.GOMAXPROCS(0)

func runServe(cmd *cobra.Command, fd, listen int, peers []int, parent int, metricsAddr string) error {
	leaveSignals()
	giveWay()
	m := serveMeter{addr: metricsAddr, stderr: cmd.ErrOrStderr(), share: share{host: listen > 0}}
	defer m.close()
	o := serve.Options{
		Version: version, Open: m.open, Stream: m.share.stream, Watch: m.watch, Parent: parent,
		GiveUp: func() { os.Exit(0) },
		Code: func(err error) int {
			if errors.Is(err, serve.ErrConfig) {
				return exitUsage
			}
			return exitCode(err)
		},
	}
	ctx := context.WithoutCancel(cmd.Context())
	var err error
	switch {
	case listen > 0:
		err = serve.ServeHost(ctx, fd, listen, o)
	case len(peers) > 0:
		err = serve.ServePeers(ctx, fd, peers, o)
	default:
		err = serve.Serve(ctx, fd, o)
	}
	if errors.Is(err, serve.ErrConfig) {
		return usage(err)
	}
	return err
}

// lower is how much less priority this process has than the process that started it. A
// loop that computed on one of two CPUs waited for the other process in 9 % of its time, and with 3
// in 4 %. With higher values, a loop that spins on all CPUs would leave too little to this process.
const lower = 3

// giveWay lowers the priority of all threads, from which later ones inherit it. The second pass
// finds threads that began during the first.
func giveWay() {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	if runtime.GOOS != "linux" { // there it is a matter of processes
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, now+lower)
		return
	}
	now = 20 - now // as the system call has it
	for range 2 {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, _ := strconv.Atoi(t.Name()); id > 0 {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, now+lower)
			}
		}
	}
}

// serveMeter serves metrics of the process, if an address for them was given.
type serveMeter struct {
	addr   string
	stderr io.Writer
	share  share
	begun  sync.Mutex // held while it begins to listen
	*meter            // nil until the first call of open
}

// open opens a data set. The first call begins to listen, because only an answer can tell the parent
// of an error.
func (m *serveMeter) open(ctx context.Context, q *serve.OpenRequest) (o *serve.Opened, err error) {
	m.begun.Lock()
	if m.addr != "" && m.meter == nil {
		m.meter, err = serveMetrics(ctx, m.addr, metricsPorts, m.stderr)
	}
	m.begun.Unlock()
	if err != nil {
		return nil, argumentError(err)
	}
	if o, err = m.share.open(ctx, q); err == nil && m.meter != nil {
		o.Metrics = m.url
	}
	return o, err
}

// metricsPorts is how many ports a child tries. It is more than a host has ranks and their loaders.
const metricsPorts = 64

func (m *serveMeter) watch(s interface{ Stats() stats.Stream }, rank int) (stop func()) {
	if m.meter == nil {
		return func() {}
	}
	return m.Watch(s, rank)
}

func (m *serveMeter) close() {
	if m.meter != nil {
		m.stop()
	}
}

// open opens the data set of OPEN.
func (s *share) open(ctx context.Context, q *serve.OpenRequest) (*serve.Opened, error) {
	if err := checkRun(cmp.Or(q.Memory, minMemory), q.Workers); err != nil { // 0 is the default
		return nil, err
	}
	s.processors(q)
	caches := cacheFlags{dir: q.Cache, size: cmp.Or(q.CacheSize, defaultCacheSize)}
	ctx, c, err := caches.open(ctx)
	if err != nil {
		return nil, argumentError(err)
	}
	closeCache := func() {
		if c == nil {
			return
		}
		if err := c.Close(); err != nil {
			warnings.Warn("closing the cache", "error", err)
		}
	}
	o, err := openServed(ctx, q)
	if err != nil {
		closeCache()
		return nil, err
	}
	o.Workers = q.Workers
	o.Close = func() {
		o.Sources.Close()
		closeCache()
	}
	return o, nil
}

// openServed opens the data sets of OPEN. With a checkpoint they are the generations that it names.
func openServed(ctx context.Context, q *serve.OpenRequest) (*serve.Opened, error) {
	spec, err := servedSources(q)
	if err != nil {
		return nil, err
	}
	from, err := servedCheckpoint(q.Checkpoint)
	if err != nil {
		return nil, err
	}
	opts := opening(ctx, reader.Options{Workers: q.Workers, Memory: q.Memory, Fields: q.Fields})
	opts.Keys, opts.LayerTables = q.Keys, q.LayerTables
	if q.Where != "" {
		opts.Where = []string{q.Where}
	}
	o := new(serve.Opened)
	if o.Sources, err = reader.OpenSources(ctx, *spec, open.Opener(opts), from); err != nil {
		if errors.Is(err, reader.ErrFields) {
			err = usage(err)
		}
		return nil, explainServed(ofSource(spec, err, argumentError))
	}
	if o.Epoch, o.End, err = o.Sources.Extent(from, q.ChangeMix); err != nil {
		o.Sources.Close()
		return nil, explainServed(err)
	}
	return o, nil
}

// servedSources returns the sources of OPEN. Errors in values that a program gives name no lines.
func servedSources(q *serve.OpenRequest) (out *reader.Spec, err error) {
	switch {
	case q.Mix == "" && !open.IsMix(q.Address):
		return open.Spec(q.Address, open.Options{Layers: q.Layers})
	case q.Where != "" || q.Keys != "":
		return nil, usagef("where and keys: a mix has them for each source, as members of the source")
	case q.Mix == "":
		out, err = spec(q.Address, open.Options{})
	default:
		if out, err = mixfile.Parse("mix", []byte(q.Mix)); err != nil {
			if in, ok := errors.AsType[*reader.SpecError](err); ok {
				in.Line = 0
			}
			err = usage(err)
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range out.Sources {
		s := &out.Sources[i]
		if q.Mix != "" {
			s.Line = 0
		}
		for _, path := range []*string{&s.Data, &s.Keys} {
			if *path, err = address.Local(*path); err != nil {
				return nil, usage(err)
			}
			if *path != "" && !strings.Contains(*path, "://") && !filepath.IsAbs(*path) {
				*path = filepath.Join(cmp.Or(q.Directory, "."), *path)
			}
		}
		for k, layer := range s.Layers {
			if q.Directory != "" && strings.HasPrefix(layer, ".") { // a name does not begin with a dot
				s.Layers[k] = filepath.Join(q.Directory, layer)
			}
		}
	}
	return out, nil
}

// servedCheckpoint decodes the text of a checkpoint; nil if the text is empty.
func servedCheckpoint(text string) (*reader.Checkpoint, error) {
	if text == "" {
		return nil, nil
	}
	cp, err := reader.DecodeCheckpoint([]byte(text))
	if err != nil {
		return nil, &exitError{exitCheckpoint, err}
	}
	return &cp, nil
}

// stream opens the stream of START.
func (s *share) stream(ctx context.Context, o *serve.Opened, q *serve.StartRequest,
	out *serve.Started) (*reader.Stream, error) {
	mixed := o.Mixed()
	a, err := askServed(q)
	if err != nil {
		return nil, err
	}
	from, err := servedCheckpoint(q.Resume.Checkpoint)
	if err != nil {
		return nil, err
	}
	if a.opt.Faults.Skipped, err = ledger.Decode([]byte(q.Resume.Ledger)); err != nil {
		return nil, &exitError{exitCheckpoint, err}
	}
	change := reader.Change{Mix: q.Resume.ChangeMix, KeepWeights: true, Skip: q.Resume.SkipSteps, Again: true,
		Begin: q.Resume.Begin}
	run, err := o.Sources.Resolve(ctx, a.spec, from, change,
		reader.Planning{Folder: a.plans, Progress: planLines(a.opt.Rank)})
	if err != nil {
		return nil, explainServed(err)
	}
	info := run.Info()
	for _, d := range info.Changed {
		fmt.Fprintln(os.Stderr, changeText(from, &d, &info))
	}
	a.opt.Tuning.Workers = cmp.Or(a.opt.Tuning.Workers, o.Workers)
	if mixed {
		a.opt.Expect = append(a.opt.Expect, others(info.Sources, a.opt.Expect)...)
	}
	stream, err := run.Stream(ctx, a.opt)
	if err != nil {
		run.Close()
		return nil, explainServed(servedFields(err, q, mixed))
	}
	remedy := "let the ranks of a host share a folder, cache='/nvme/cache', or what they hold, Tuning(host=True)"
	if a.opt.Tuning.Share {
		remedy = "let the ranks of a host share a folder, cache='/nvme/cache'"
	}
	for _, advice := range []string{
		seedAdvice(func(name string) bool { return a.spec.Said[name] }, a.opt.Rank, from != nil, "shuffle=True", "shuffle=False"),
		costAdvice(&a.opt, &info, "Order(cost_group=%d)"),
		fetchAdvice(&a.opt, stream, remedy),
	} {
		if advice != "" {
			warnings.Warn(advice)
		}
	}
	stream.WarnMixing(ctx, func(v uniformity.Verdict) {
		warnings.Warn(v.Warning(uniformity.Spelling{Memory: "shuffle_memory='%s'", Delay: "delay",
			Shuffle: "shuffle the data when packing it"}))
	})
	out.Rank, out.WorldSize, out.Workers = a.opt.Rank, a.opt.World, a.opt.Tuning.Workers
	end := s.limit(stream.Info().Memory)
	out.Close = func() {
		run.Close()
		end()
	}
	return stream, nil
}
