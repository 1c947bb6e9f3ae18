package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
)

// TestKilledRemoval kills layer add, remove and purge at random moments, beside a process that
// reads the data set with its layer. What is published is then entirely what was before or what the
// command makes, the layer never ahead of its base, and repeating the command gives what it makes.
// In every other round samples are appended and old generations pruned before that.
func TestKilledRemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	t.Parallel()
	kills := killsOr(t, 6)
	set := newKillable(t, 400, 10, 2000, func(i int) bool { return i%9 == 0 })
	dir, base := set.dir, set.base
	grow := func(out string) {
		for _, cmd := range []*exec.Cmd{
			packCommand(set.more, out, "--quiet", "--append"), onSet("prune OUT --grace 0s", out), onSet("prune OUT/layers/captions --grace 0s", out),
		} {
			if text, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != 6 { // no layer yet
				t.Fatalf("%q: %v\n%s", cmd.Args, err, text)
			}
		}
	}
	for n, command := range []string{
		set.add, "remove OUT --keys " + set.keys, "purge OUT --quiet", "purge OUT --quiet --generations",
	} {
		run := func(out string) {
			if text, err := onSet(command, out).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, text)
			}
		}
		after, grown := filepath.Join(dir, fmt.Sprint("after", n)), filepath.Join(dir, fmt.Sprint("grown", n))
		copyTree(t, base, after)
		begin := time.Now()
		run(after)
		took := time.Since(begin)
		copyTree(t, base, grown)
		grow(grown)
		run(grown)
		before, done, doneGrown := stateOf(t, base), stateOf(t, after), stateOf(t, grown)
		killed := 0
		for round := 0; killed < kills; round++ {
			if round == 20*kills {
				t.Fatalf("%s: only %d of %d were killed", command, killed, round)
			}
			out := filepath.Join(dir, "out")
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			copyTree(t, base, out)
			read := exec.Command("shardtool", "cat", out, "--shuffle")
			if n > 0 {
				read.Args = append(read.Args, "--layer", "captions")
			}
			var text bytes.Buffer
			read.Stderr = &text
			cmd := onSet(command, out)
			if err := errors.Join(read.Start(), cmd.Start()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(took))))
			_ = cmd.Process.Kill()
			if cmd.Wait() != nil {
				killed++
			}
			if err := read.Wait(); err != nil && !strings.Contains(command, "--generations") { // which deletes what is read
				t.Fatalf("%s, round %d: beside it, %q: %v\n%s", command, round, read.Args, err, text.String())
			}
			now := stateOf(t, out)
			if now != before && now != done && now != [2]string{done[0], before[1]} {
				t.Fatalf("%s, round %d: %s", command, round, now)
			}
			if n == 0 && now == done { // there is a layer now
				continue
			}
			want := done
			if round%2 == 1 {
				grow(out)
				want = doneGrown
			}
			run(out)
			if now := stateOf(t, out); now != want {
				t.Fatalf("%s, round %d: once more leads to %s, want %s", command, round, now, want)
			}
		}
		t.Logf("%s: killed %d times", command, killed)
		base = after
	}
}

// killable is a data set in a temporary folder, and what is done to it.
type killable struct {
	dir, base, keys string // keys has the keys to remove, one in each line
	more            string // a folder of samples to append
	add, update     string // commands that add the layer captions, or replace it by an equal one
	captions        []string
	marks           map[string]string // of the samples to remove: what each field has, by key
}

// newKillable packs samples, in shards of 10, whose texts have as many lines.
func newKillable(t *testing.T, samples, more, lines int, removed func(i int) bool) *killable {
	t.Helper()
	dir := t.TempDir()
	set := &killable{dir: dir, base: filepath.Join(dir, "base"), keys: filepath.Join(dir, "keys"), more: filepath.Join(dir, "more"), marks: map[string]string{}}
	src, rows := filepath.Join(dir, "src"), filepath.Join(dir, "rows.jsonl")
	var keys, captions strings.Builder
	for i := range samples + more {
		folder, key, mark := src, fmt.Sprintf("s%03d", i), fmt.Sprintf("<%03d>", i)
		if i >= samples {
			folder = set.more
		}
		writeText(t, filepath.Join(folder, key+".txt"), strings.Repeat(mark+" text\n", lines))
		set.captions = append(set.captions, strings.Repeat(mark+" ", 100))
		fmt.Fprintf(&captions, "{\"id\": %q, \"caption\": %q}\n", key, set.captions[i])
		if i < samples && removed(i) {
			fmt.Fprintln(&keys, key)
			set.marks[key] = mark
		}
	}
	writeText(t, set.keys, keys.String())
	writeText(t, rows, captions.String())
	set.add = "layer add OUT captions " + rows + " --key id --columns caption --unknown skip --resume --quiet"
	set.update = set.add + " --overwrite"
	if code := runCode(t, packCommand(src, set.base, "--quiet", "--samples-per-shard", "10")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	return set
}

// killsOr returns how many kills a test makes.
func killsOr(t *testing.T, kills int) int {
	t.Helper()
	if text := os.Getenv(killsVariable); text != "" {
		if _, err := fmt.Sscan(text, &kills); err != nil {
			t.Fatal(err)
		}
	}
	return kills
}

// writeText writes a file, and its folder.
func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// onSet is a command with the data set in place of OUT.
func onSet(command, out string) *exec.Cmd {
	return exec.Command("shardtool", strings.Fields(strings.Replace(command, "OUT", out, 1))...)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// stateOf describes what is published of a data set and of its layer, which must be whole.
func stateOf(t *testing.T, out string) (state [2]string) {
	t.Helper()
	for i, set := range []string{out, filepath.Join(out, "layers", "captions")} {
		if _, err := os.Stat(filepath.Join(set, format.ManifestName)); err != nil {
			continue
		}
		if text, err := exec.Command("shardtool", "verify", set, "--deep", "--quiet").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		keys, err := exec.Command("shardtool", "ls", set).Output()
		if err != nil {
			t.Fatal(err)
		}
		text, err := exec.Command("shardtool", "inspect", set).Output()
		if err != nil {
			t.Fatal(err)
		}
		state[i] = fmt.Sprintf("%d keys", strings.Count(string(keys), "\n"))
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " removed, ") {
				state[i] += ", " + line
			}
		}
	}
	return state
}
