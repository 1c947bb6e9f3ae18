package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// killedPack is a pack that is interrupted and resumed.
type killedPack struct {
	src, want string   // the source, and what a pack makes of it that is left alone: this one makes it
	flags     []string // of every pack
	other     []string // flags, in place of these, with which a stopped pack must not resume
	shards    int      // it is stopped after 1 to this many shards
	samples   int      // of the result, 0: unknown
	skipped   int      // that do not
	signals   []syscall.Signal
}

// run stops the pack at random moments: nothing is visible, and --resume adopts the finished shards
// and writes the bytes of an uninterrupted pack.
func (p *killedPack) run(t *testing.T) {
	t.Helper()
	done := 0
	if p.skipped > 0 {
		done = exitSkipped
	}
	if code := runCode(t, packCommand(p.src, p.want, slices.Concat(p.flags, []string{"--quiet"})...)); code != done {
		t.Fatalf("exit %d", code)
	}
	for _, sig := range p.signals {
		if testing.Short() && sig != syscall.SIGTERM {
			continue // a stop that goroutines take part in; what kills leave is tested by make test
		}
		var out, words string
		var code int
		for try := range 20 {
			out = filepath.Join(t.TempDir(), "out")
			shards := 1 + rand.IntN(max(p.shards>>try, 1))
			code, words = stopInside(t, packCommand(p.src, out, p.flags...), out, shards, sig)
			t.Logf("%v after %d shards: exit %d", sig, shards, code)
			if _, err := os.Stat(filepath.Join(out, "manifest.json")); err != nil {
				break
			}
			p.same(t, sig, out) // published before the signal came, as on a busy machine: whole, then
		}
		if sig != syscall.SIGKILL {
			if code != exitStopped {
				t.Errorf("%v: exit %d, want %d", sig, code, exitStopped)
			}
			if !strings.Contains(words, "nothing was published; the same command with --resume continues") || strings.Count(words, "stopped by a signal") != 1 {
				t.Errorf("%v: no advice, or twice: %s", sig, words)
			}
		}
		if code := runCode(t, exec.Command("shardtool", "ls", out)); code != exitNotFound {
			t.Fatalf("%v: ls exits %d: something was published", sig, code)
		}
		if p.other != nil {
			if code := runCode(t, packCommand(p.src, out, slices.Concat(p.other, []string{"--resume", "--quiet"})...)); code == 0 {
				t.Errorf("%v: resumed with %q", sig, p.other)
			}
		}
		p.resume(t, sig, out, done)
	}
}

// resume resumes an interrupted pack and compares the result.
func (p *killedPack) resume(t *testing.T, sig syscall.Signal, out string, done int) {
	t.Helper()
	cmd := packCommand(p.src, out, slices.Concat(p.flags, []string{"--resume", "--json", "--quiet"})...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != done {
		t.Fatalf("%v: exit %d: %v", sig, code, err)
	}
	var res struct{ Adopted, Written, Samples, Skipped int }
	if err := json.Unmarshal(text, &res); err != nil {
		t.Fatal(err)
	}
	if (p.samples > 0 && res.Samples != p.samples) || res.Skipped != p.skipped || res.Adopted < 1 || res.Adopted+res.Written != res.Samples {
		t.Errorf("%v: %+v: nothing taken over, or something lost", sig, res)
	}
	p.same(t, sig, out)
}

// same compares what was published with the data set of a pack that was not interrupted.
func (p *killedPack) same(t *testing.T, sig syscall.Signal, out string) {
	t.Helper()
	programs.Need(t, "diff")
	for _, c := range []*exec.Cmd{
		exec.Command("diff", "-r", "-x", ".*", p.want, out), exec.Command("shardtool", "verify", out, "--deep"),
	} {
		if text, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %v\n%s", sig, c.Args, err, text)
		}
	}
}
