// Command bench measures shardtool against what the machine can do at best, and against other
// tools, in one run: every figure is a ratio of two things measured in turn, so that a noisy
// machine disturbs both.
//
//	go run ./bench                 all groups but peers, strings and kinds, which run only by name
//	go run ./bench -run read,pack  some groups
//	go run ./bench -mib 64         smaller data, for a quick look
//	go run ./bench -markdown bench/PEERS.md     and put the tables there
//	go run ./bench -old HEAD~20 -run read,pack    compare with an older revision, in pairs
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// bench is one run.
type bench struct {
	ctx   context.Context
	dir   string        // for data sets and files
	mib   int           // size of a corpus
	times int           // pairs measured for a ratio
	long  time.Duration // of a paced run from S3
	cores int
	table.Table
	data map[string]string
	bin  string
	// twice is the share of blocks that the last stream read more than once an epoch.
	twice float64
	// before, when not nil, runs before each measurement, uncounted.
	before func()
	// used is the processor time of each run that the last ratio counted, of ours and of the base.
	used  [2]table.Sample
	peers []peerResult
	// interpreter is a Python that has the other systems, or "".
	interpreter string
	// The machine and header describe where the figures were measured.
	peersMachine []string
	header       string
}

var groups = []struct {
	name string
	run  func(*bench) error
}{
	{"read", (*bench).read},
	{"stream", (*bench).stream},
	{"mixes", (*bench).mixes},
	{"start", (*bench).start},
	{"pack", (*bench).pack},
	{"write", (*bench).writes},
	{"images", (*bench).images},
	{"loop", (*bench).loops},
	{"python", (*bench).pythonPackage},
	{"s3", (*bench).s3},
	{"stores", (*bench).stores},
	{"layers", (*bench).layers},
	{"cache", (*bench).amplification},
	{"peers", (*bench).peersGroup},
	{"strings", (*bench).strings},
	{"kinds", (*bench).kinds},
}

// apart are groups that take long, or much space. They run only by name.
var apart = []string{"peers", "strings", "kinds"}

func main() {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	var o options
	only := flag.String("run", "all", "groups to run: all but "+strings.Join(apart,
		", ")+", or some of "+strings.Join(names, ", "))
	flag.IntVar(&o.mib, "mib", 128, "size of each corpus in MiB")
	flag.IntVar(&o.times, "times", 3, "pairs measured for a ratio; the median counts")
	flag.DurationVar(&o.long, "long", 20*time.Second, "how long a paced consumer of S3 is measured")
	flag.StringVar(&o.dir, "dir", "", "where data goes (default: the system's folder for temporary files)")
	flag.BoolVar(&o.asJSON, "json", false, "print as JSON")
	flag.StringVar(&o.old, "old", "",
		"compare with an older `revision` of git, or with a folder that has one checked out: both programs run each group in turn")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of old and new program with -old")
	flag.StringVar(&o.interpreter, "python", os.Getenv("BENCH_PYTHON"),
		"a Python `interpreter` that has the packages of bench/requirements.txt")
	flag.StringVar(&o.markdown, "markdown", "",
		"put tables into these Markdown `files`, a,b, between the comments that say where")
	flag.Parse()
	if o.only = strings.Split(*only, ","); *only == "all" {
		o.only, o.all = slices.DeleteFunc(slices.Clone(names),
			func(name string) bool { return slices.Contains(apart, name) }), true
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			fmt.Fprintf(os.Stderr, "bench: no group %q; there are %s\n", name, strings.Join(names, ", "))
			os.Exit(2)
		}
	}
	if o.rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: -rounds is at least 1")
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only          []string // groups
	all           bool     // of them
	dir, markdown string
	interpreter   string // that has the other systems
	old           string // a folder or a revision to compare with
	rounds        int    // of the comparison
	mib, times    int
	long          time.Duration
	asJSON        bool
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends it at once
	tmp, err := os.MkdirTemp(o.dir, "shardtool-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if o.old != "" {
		_ = os.Setenv("BENCH_PYTHON", o.interpreter) // both programs inherit it; the older may not know the flag
		return runOld(ctx, tmp, o)
	}
	b := &bench{ctx: ctx, dir: tmp, mib: o.mib, times: o.times, long: o.long, cores: runtime.GOMAXPROCS(0),
		data: map[string]string{}, interpreter: o.interpreter}
	b.header = fmt.Sprintf("%s %s/%s, %d CPUs for this process, data in %s, %d MiB a corpus, page cache warm (each input is read once before)",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, b.cores, fsKind(tmp), o.mib)
	head := io.Writer(os.Stdout)
	if o.asJSON {
		head = os.Stderr
	}
	fmt.Fprintln(head, b.header)
	var failed []error
	for _, g := range groups {
		if !slices.Contains(o.only, g.name) {
			continue
		}
		failed = append(failed, b.Measure(g.name, func() error { return g.run(b) }))
		if ctx.Err() != nil {
			break
		}
	}
	if o.markdown != "" && ctx.Err() == nil {
		for file := range strings.SplitSeq(o.markdown, ",") {
			failed = append(failed, b.writeMarkdown(file, o.all))
		}
	}
	if o.asJSON {
		failed = append(failed, b.JSON(os.Stdout))
	} else {
		failed = append(failed, b.print())
	}
	return errors.Join(failed...)
}

// runOld prints the comparison with an older revision.
func runOld(ctx context.Context, tmp string, o options) error {
	pairs, failed := compareOld(ctx, tmp, ".", o)
	if o.asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return errors.Join(failed, enc.Encode(pairs))
	}
	return errors.Join(failed, table.PrintPairs(os.Stdout, pairs))
}

func (b *bench) print() error {
	err := b.Print(os.Stdout)
	for _, line := range b.peersMachine {
		fmt.Println("peers: " + line)
	}
	return err
}

// ratio measures base and ours in turn and returns how many times as fast ours is, pair by pair,
// and the median seconds of both. Both run once before, uncounted.
func (b *bench) ratio(ours, base func() error) (r, our, bas table.Sample, err error) {
	time1 := func(f func() error) (float64, error) {
		if b.before != nil {
			b.before()
		}
		runtime.GC()
		begin := time.Now()
		err := f()
		return time.Since(begin).Seconds(), err
	}
	b.used = [2]table.Sample{}
	for i := range b.times + 1 {
		order := []func() error{ours, base}
		var took [2]float64
		for k := range 2 {
			j := (k + i) % 2 // who goes first alternates
			before := cpu() + childrenCPU()
			if took[j], err = time1(order[j]); err != nil {
				return nil, nil, nil, err
			}
			if i > 0 {
				b.used[j] = append(b.used[j], (cpu() + childrenCPU() - before).Seconds())
			}
		}
		if i > 0 {
			r, our, bas = append(r, took[1]/took[0]), append(our, took[0]), append(bas, took[1])
		}
	}
	return r, our, bas, nil
}

// processor describes the processor time of the last ratio, including child processes. On a busy
// machine it says more than the time that passed.
func (b *bench) processor() string {
	our, base := b.used[0].Median(), b.used[1].Median()
	return fmt.Sprintf("processor time %.2f s against %.2f s, %.2f x", our, base, base/our)
}

func mbs(bytes int64, seconds float64) string {
	return fmt.Sprintf("%.0f MB/s", float64(bytes)/seconds/1e6)
}
