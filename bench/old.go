package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// comparison runs the bench programs of two revisions in turn and compares their rows.
type comparison struct {
	ctx context.Context
	dir string // temporary
	options
}

// program is the bench program of one revision. It runs in its checkout, because some groups build
// the command and import the Python package from there.
type program struct{ bin, checkout string }

// compareOld compares the checkout here with an older one: group by group and round by round, the
// two programs run in turn, and who runs first alternates. It builds and measures in dir.
func compareOld(ctx context.Context, dir, here string, o options) ([]table.Pair, error) {
	dir, err := filepath.Abs(dir) // the programs run in other folders
	if err != nil {
		return nil, err
	}
	c := comparison{ctx: ctx, dir: dir, options: o}
	checkout, err := c.checkout()
	if err != nil {
		return nil, err
	}
	var programs [2]program // old, new
	for i, where := range []string{checkout, here} {
		programs[i] = program{filepath.Join(c.dir, [2]string{"old", "new"}[i]+".bench"), where}
		if out, err := c.command(where, "go", "build", "-o", programs[i].bin, "./bench").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the benchmark of %s: %w\n%s", where, err, out)
		}
	}
	rounds := make([]table.Round, o.rounds)
	var failed []error
	for i := range rounds {
		for _, group := range o.only {
			var rows [2][]table.Row
			for k := range 2 {
				j := (k + i) % 2
				fmt.Fprintf(os.Stderr, "bench: round %d of %d: %s, %s\n", i+1, o.rounds, group,
					[2]string{"old", "new"}[j])
				var err error
				if rows[j], err = c.measure(programs[j], group); err != nil {
					failed = append(failed, fmt.Errorf("%s of %s: %w", group, programs[j].checkout, err))
				}
				if ctx.Err() != nil {
					return table.Pairs(rounds), errors.Join(failed...) // the rounds until the interrupt
				}
			}
			rounds[i].Old, rounds[i].New = append(rounds[i].Old, rows[0]...), append(rounds[i].New, rows[1]...)
		}
	}
	return table.Pairs(rounds), errors.Join(failed...)
}

// checkout returns the folder of the old revision: the one named, or one made of a revision of git.
func (c *comparison) checkout() (string, error) {
	if info, err := os.Stat(c.old); err == nil && info.IsDir() {
		return c.old, nil
	}
	dir := filepath.Join(c.dir, "checkout")
	archive := filepath.Join(c.dir, "checkout.tar")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"git", "archive", "--output", archive, c.old},
		{"tar", "-xf", archive, "-C", dir}} {
		if out, err := c.command(".", args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s is neither a folder nor a revision that can be unpacked: %s: %w: %s", c.old,
				args[0], err, strings.TrimSpace(string(out)))
		}
	}
	return dir, os.Remove(archive)
}

// measure runs one group of a program. A group that fails still has its other rows.
func (c *comparison) measure(p program, group string) (rows []table.Row, err error) {
	cmd := c.command(p.checkout, p.bin, "-json", "-run", group, "-mib", fmt.Sprint(c.mib), "-times",
		fmt.Sprint(c.times), "-long", c.long.String(), "-dir", c.dir)
	cmd.Stderr = os.Stderr
	out, failed := cmd.Output()
	if len(out) == 0 {
		return nil, failed // a program without the group prints nothing but its error
	}
	return rows, errors.Join(failed, json.Unmarshal(out, &rows))
}

// command is a child that ends soon after an interrupt of this process.
func (c *comparison) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
