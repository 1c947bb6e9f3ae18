package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

var updateRefused = flag.Bool("update-refused", false, "write testdata/refused.txt and refused_serve.txt anew")

// refusedFlags are the flags that are given with each checkpoint: those that agree with it, and
// those that do not.
var refusedFlags = []string{
	"", "--shuffle", "--shuffle=false", "--seed 3", "--seed 4", "--epoch 0", "--epoch 3", "--epochs 0", "--global-batch 8", "--global-batch 7",
	"--rank 1 --world-size 2", "--rank 2 --world-size 2", "--shuffle-memory 2GiB", "--shuffle-memory 1KiB", "--shuffle-memory 100KiB", "--whole-shards", "--lanes 0",
	"--lanes 7", "--run-blocks 3", "--delay 1000", "--head 3", "--affinity epoch", "--affinity run", "--tail short", "--tail wrap", "--tail drop --global-batch 1000",
	"--where tokens<50", "--keys keys.txt", "--pack 128", "--pack 200", "--pack 200 --change-mix", "--bucket 300", "--bucket 300 --change-mix", "--by tokens", "--by other",
	"--long error", "--long drop", "--unit-window 0", "--unit-window 300", "--change-mix", "--skip-steps 4-5", "--skip-steps 0-0", "--seed 4 --change-mix", "--step 3",
}

// refusedCheckpoints has the checkpoints of each version, and what they are of. The file edited is
// one whose check does not fit.
var refusedCheckpoints = []struct{ name, of, flags string }{
	{"1", "set", ""}, {"3", "set", "--pack 128"}, {"2", "mix.yaml", ""}, {"2-units", "mix.yaml", "--pack 128"},
}

// refusedTargets are what a checkpoint is resumed with.
var refusedTargets = []string{"set", "other", "set#some", "copy", "mix.yaml", "weights.yaml", "fewer.yaml", "replaced.yaml", "epoch.yaml", "lanes.yaml"}

// makeRefused makes data sets, mixes and checkpoints in the folder that it changes to.
func makeRefused(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOMEMLIMIT", "1GiB") // cat would set one for the whole process
	before := warnings
	warnings = slog.New(slog.DiscardHandler)
	t.Cleanup(func() { warnings = before })
	for _, set := range []struct {
		name string
		rows int
	}{{"set", 200}, {"other", 150}, {"third", 90}} {
		var text bytes.Buffer
		for i := range set.rows {
			n := 1 + (i*i+7*i)%97
			fmt.Fprintf(&text, "{\"id\":\"%s%d\",\"tokens\":%d,\"other\":%d,\"text\":\"x\"}\n", set.name, i, n, n+1)
		}
		putFile(t, set.name+".jsonl", text.String())
		inProcess(t, "pack", set.name+".jsonl", set.name, "--key", "id", "--attr", "tokens=tokens", "--attr", "other=other", "--block-size", "4KiB", "--quiet")
	}
	inProcess(t, "pack", "set.jsonl", "copy", "--key", "id", "--attr", "tokens=tokens", "--attr", "other=other", "--block-size", "4KiB", "--quiet", "--level", "best")
	inProcess(t, "select", "set", "--where", "tokens > 9", "--name", "some")
	putFile(t, "keys.txt", "set1\nset2\nset3\n")
	const whole = "sources:\n  a: {data: set, weight: 6}\n  b: {data: other, weight: 3}\n"
	putFile(t, "mix.yaml", whole)
	putFile(t, "weights.yaml", strings.Replace(whole, "6", "5", 1))
	putFile(t, "fewer.yaml", whole[:strings.Index(whole, "  b:")])
	putFile(t, "replaced.yaml", strings.Replace(whole, "other", "third", 1))
	putFile(t, "epoch.yaml", whole+"epoch: 1000\n")
	putFile(t, "lanes.yaml", strings.Replace(whole, "weight: 3", "weight: 3, order: {lanes: 2}", 1))
	for _, c := range refusedCheckpoints {
		args := append([]string{"cat", c.of, "--json", "--shuffle", "--seed", "3", "--global-batch", "8", "--limit", "24", "--checkpoint-out", c.name}, strings.Fields(c.flags)...)
		inProcess(t, args...)
	}
	text, err := os.ReadFile("1")
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, "edited", strings.Replace(string(text), `"position":24`, `"position":32`, 1))
	putFile(t, "none", "{}")
}

func putFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// execute runs a command in this process and returns its error.
func execute(ctx context.Context, args ...string) error {
	root := newRoot()
	root.SetArgs(args)
	stdin, _ := os.ReadFile("stdin") // of the working directory, if a test has one there
	root.SetIn(bytes.NewReader(stdin))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.ExecuteContext(ctx)
}

func inProcess(t *testing.T, args ...string) {
	t.Helper()
	if err := execute(t.Context(), args...); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

// refusal is the exit code of an error, and what kind of error a program sees.
func refusal(err error) string {
	if err == nil {
		return "0"
	}
	class := ""
	var one *order.MismatchError
	var mixed *mix.MismatchError
	switch {
	case errors.As(err, &one):
		class = " mismatch of " + one.Field
	case errors.As(err, &mixed) && mixed.Frozen:
		class = " mismatch of " + mixed.Field + ", frozen"
	case errors.As(err, &mixed):
		class = " mismatch of " + mixed.Field
	case errors.Is(err, order.ErrEdited):
		class = " edited"
	case errors.Is(err, order.ErrMismatch):
		class = " mismatch"
	case errors.Is(err, reader.ErrOptions):
		class = " options"
	}
	return fmt.Sprint(exitCode(err), class)
}

// table lists cases by their outcome, in the order in which outcomes appear.
type table struct {
	outcomes []string
	cases    map[string][]string
}

func (o *table) add(outcome, name string) {
	if o.cases == nil {
		o.cases = map[string][]string{}
	}
	if o.cases[outcome] == nil {
		o.outcomes = append(o.outcomes, outcome)
	}
	o.cases[outcome] = append(o.cases[outcome], name)
}

func (o *table) String() string {
	var text strings.Builder
	slices.Sort(o.outcomes)
	for _, outcome := range o.outcomes {
		fmt.Fprintf(&text, "  %s: %s\n", outcome, strings.Join(o.cases[outcome], " | "))
	}
	return text.String()
}

// compareGolden compares a text with a file of testdata.
func compareGolden(t *testing.T, file, text string) {
	t.Helper()
	if *updateRefused || *update {
		putFile(t, file, text)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	is, was := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(is), len(was)) {
		if i >= len(is) || i >= len(was) || is[i] != was[i] {
			t.Fatalf("%s:%d differs; if that is meant, run the test with -update\nis:  %s\nwas: %s", file, i+1, strings.Join(is[min(i, len(is)):min(i+1, len(is))], ""), strings.Join(was[min(i, len(was)):min(i+1, len(was))], ""))
		}
	}
}

// TestRefusedCheckpoints: which checkpoints are continued with which data set, mix and flags, and
// with which exit code the others are refused.
func TestRefusedCheckpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("one command after another: make test runs it without the race detector")
	}
	golden, err := filepath.Abs("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	makeRefused(t)
	commands := [][]string{
		{"order", "--limit", "1"}, {"cat", "--json", "--limit", "1"}, {"explain", "--limit", "1"}, {"simulate"}, {"stage", "--cache", filepath.Join(t.TempDir(), "cache")},
	}
	var text strings.Builder
	for _, c := range append(refusedCheckpoints, struct{ name, of, flags string }{name: "edited"}, struct{ name, of, flags string }{name: "none"}, struct{ name, of, flags string }{name: "missing"}) {
		for _, target := range refusedTargets {
			for _, command := range commands {
				flags := refusedFlags
				if command[0] != "order" && target != "set" && target != "mix.yaml" || c.of == "" {
					flags = flags[:1]
				}
				var outcomes table
				for _, given := range flags {
					args := slices.Concat(command, []string{target, "--checkpoint-in", c.name}, strings.Fields(given))
					outcomes.add(refusal(execute(t.Context(), args...)), "("+given+")")
				}
				fmt.Fprintf(&text, "%s: checkpoint %s, %s\n%v", command[0], c.name, target, &outcomes)
			}
		}
	}
	compareGolden(t, golden, text.String())
}
