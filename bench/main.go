// Command bench measures shardtool against what the machine can do at best, and against other tools, in one run: every
// figure is a ratio of two things measured in turn, so that a noisy machine disturbs both.
//
//	go run ./bench                 everything
//	go run ./bench -run read,pack  some groups
//	go run ./bench -mib 64         smaller data, for a quick look
//	go run ./bench -run paced -long 10m
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// bench is one run.
type bench struct {
	ctx   context.Context
	dir   string        // for data sets and files
	mib   int           // size of a corpus
	times int           // pairs measured for a ratio
	long  time.Duration // of a paced run
	cores int
	rows  []row
	data  map[string]string
	bin   string
	// twice is the share of blocks that the last stream read more than once an epoch.
	twice float64
	// before, when not nil, runs before each measurement, uncounted.
	before func()
}

// row is a line of the table.
type row struct {
	Group  string  `json:"group"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Unit   string  `json:"unit"`
	Goal   string  `json:"goal"`
	Met    *bool   `json:"met,omitempty"`
	Detail string  `json:"detail"`
}

var groups = []struct {
	name string
	run  func(*bench) error
}{
	{"read", (*bench).read},
	{"stream", (*bench).stream},
	{"autotune", (*bench).autotune},
	{"accounts", (*bench).accounts},
	{"start", (*bench).start},
	{"order", (*bench).order},
	{"verify", (*bench).verify},
	{"get", (*bench).get},
	{"index", (*bench).index},
	{"pack", (*bench).pack},
	{"reshard", (*bench).reshard},
	{"foreign", (*bench).foreign},
	{"parquet", (*bench).parquet},
	{"lines", (*bench).lines},
	{"tokens", (*bench).tokens},
	{"parts", (*bench).parts},
	{"memory", (*bench).memory},
	{"paced", (*bench).pacedRows},
	{"webdataset", (*bench).webdataset},
	{"packers", (*bench).packers},
	{"python", (*bench).pythonPackage},
}

func main() {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	only := flag.String("run", strings.Join(names, ","), "groups to run")
	mib := flag.Int("mib", 256, "size of each corpus in MiB")
	times := flag.Int("times", 7, "pairs measured for a ratio; the median counts")
	long := flag.Duration("long", time.Minute, "how long a paced consumer is measured")
	dir := flag.String("dir", "", "where data goes (default: the system's folder for temporary files)")
	asJSON := flag.Bool("json", false, "print as JSON")
	flag.Parse()
	if err := run(*only, *mib, *times, *long, *dir, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only string, mib, times int, long time.Duration, dir string, asJSON bool) error {
	tmp, err := os.MkdirTemp(dir, "shardtool-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{ctx: context.Background(), dir: tmp, mib: mib, times: times, long: long, cores: runtime.GOMAXPROCS(0), data: map[string]string{}}
	fmt.Printf("%s %s/%s, %d CPUs for this process, data in %s, %d MiB a corpus, page cache warm (each input is read once before)\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, b.cores, fsKind(tmp), mib)
	for _, g := range groups {
		if !slices.Contains(strings.Split(only, ","), g.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s …\n", g.name)
		if err := g.run(b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(b.rows)
	}
	return b.print()
}

func (b *bench) print() error {
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nGROUP\tWHAT\tMEASURED\tRANGE\tGOAL\t\tDETAIL")
	for _, r := range b.rows {
		mark := ""
		if r.Met != nil {
			mark = "met"
			if !*r.Met {
				mark = "SHORT"
			}
		}
		span := ""
		if r.Low != r.High {
			span = fmt.Sprintf("%.3g–%.3g", r.Low, r.High)
		}
		fmt.Fprintf(t, "%s\t%s\t%.3g %s\t%s\t%s\t%s\t%s\n", r.Group, r.Name, r.Value, r.Unit, span, r.Goal, mark, r.Detail)
	}
	return t.Flush()
}

// atLeast and atMost add a row with a goal, info one without.
func (b *bench) atLeast(group, name string, s sample, unit string, goal float64, detail string) {
	met := s.median() >= goal
	b.add(group, name, s, unit, fmt.Sprintf("≥ %g", goal), &met, detail)
}

func (b *bench) atMost(group, name string, s sample, unit string, goal float64, detail string) {
	met := s.median() <= goal
	b.add(group, name, s, unit, fmt.Sprintf("≤ %g", goal), &met, detail)
}

// within adds a row whose goal is 1, give or take.
func (b *bench) within(group, name string, s sample, unit string, off float64, detail string) {
	met := math.Abs(s.median()-1) <= off
	b.add(group, name, s, unit, fmt.Sprintf("1 ± %g", off), &met, detail)
}

func (b *bench) info(group, name string, s sample, unit, detail string) {
	b.add(group, name, s, unit, "", nil, detail)
}

func (b *bench) add(group, name string, s sample, unit, goal string, met *bool, detail string) {
	b.rows = append(b.rows, row{group, name, s.median(), slices.Min(s), slices.Max(s), unit, goal, met, detail})
}

// sample is repeated readings of one figure.
type sample []float64

func one(v float64) sample { return sample{v} }

func (s sample) median() float64 {
	c := slices.Sorted(slices.Values(s))
	return c[len(c)/2]
}

// ratio measures base and ours in turn and returns how many times as fast ours is, pair by pair, and the median seconds of
// both. Both run once before, uncounted.
func (b *bench) ratio(ours, base func() error) (r sample, our, bas sample, err error) {
	time1 := func(f func() error) (float64, error) {
		if b.before != nil {
			b.before()
		}
		runtime.GC()
		begin := time.Now()
		err := f()
		return time.Since(begin).Seconds(), err
	}
	for i := range b.times + 1 {
		order := []func() error{ours, base}
		var took [2]float64
		for k := range 2 {
			j := (k + i) % 2 // who goes first alternates
			if took[j], err = time1(order[j]); err != nil {
				return nil, nil, nil, err
			}
		}
		if i > 0 {
			r, our, bas = append(r, took[1]/took[0]), append(our, took[0]), append(bas, took[1])
		}
	}
	return r, our, bas, nil
}

func mbs(bytes int64, seconds float64) string {
	return fmt.Sprintf("%.0f MB/s", float64(bytes)/seconds/1e6)
}
