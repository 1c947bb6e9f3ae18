package slurm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// trainer reads its samples and ends as the file "how" requests: "crash" ends rank 1 with 3 before
// it has read anything, "wait" reads until the input ends. Each start adds a line to the file
// "starts".
const trainer = `#!/usr/bin/env bash
echo start >>starts
case "$(cat how)-$SLURM_PROCID" in
crash-1) exit 3 ;;
crash-*) exec head -c 100000 >/dev/null ;;
esac
exec cat >/dev/null
`

// TestTrain checks that a job whose trainer crashes fails with the trainer's exit code, and that
// one that is stopped by the signal before a time limit is requeued and resumes from the earliest
// checkpoint, with the skipped blocks of all ranks.
func TestTrain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := start(ctx, t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", c.dir+"/bin/shardtool", "./cmd/shardtool")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c.env = append(c.env, "PATH="+c.dir+"/bin:"+os.Getenv("PATH"))
	c.run(ctx, t, c.dir+"/bin/shardtool", "pack", root+"/testdata/demo", "out", "--quiet")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(c.dir, name))
		return string(text)
	}
	write("trainer", trainer)
	submit := func(how string) (job string) {
		t.Helper()
		write("how", how)
		_ = os.Remove(c.dir + "/starts")
		return c.run(ctx, t, "sbatch", "--parsable", "--ntasks", "2", root+"/deploy/slurm/train.sbatch", "out", "./trainer")
	}
	started := func(n int) {
		t.Helper()
		c.until(ctx, t, "trainers to start", func() (string, bool) {
			out := read("starts")
			return out, strings.Count(out, "\n") >= n
		})
	}

	job := submit("crash")
	c.gone(ctx, t, job)
	shown := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", job)
	if !strings.Contains(shown, "JobState=FAILED") || !strings.Contains(shown, "ExitCode=3:0") {
		t.Errorf("a job whose trainer crashed: %s", shown)
	}
	if log := read("train-" + job + ".log"); strings.Contains(log, "done") {
		t.Errorf("the log of a job whose trainer crashed: %s", log)
	}

	if err := os.RemoveAll(c.dir + "/state-train"); err != nil {
		t.Fatal(err)
	}
	job = submit("wait")
	started(2)
	for _, rank := range []string{"0", "1"} {
		file := "state-train/rank-" + rank + ".json"
		c.until(ctx, t, file, func() (string, bool) { return "", read(file) != "" })
	}
	c.run(ctx, t, "scancel", "--signal=USR1", job)
	c.until(ctx, t, "the job to end", func() (string, bool) {
		out := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", job)
		return out, strings.Contains(out, "JobState=PENDING") || strings.Contains(out, "JobState=FAILED") || strings.Contains(out, "Restarts=1 ")
	})
	write("state-train/rank-0.json.skipped", `{"shard":"b","block":10,"first":1,"samples":1,"reason":"x"}`+"\n")
	write("state-train/rank-1.json.skipped", `{"shard":"a","block":9,"first":0,"samples":1,"reason":"x"}`+"\n"+
		`{"shard":"b","block":10,"first":1,"samples":1,"reason":"x"}`+"\n")
	started(4)
	c.run(ctx, t, "scancel", "--signal=KILL", job)
	if shown := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", job); !strings.Contains(shown, "Restarts=1 ") {
		t.Errorf("the job that was stopped: %s", shown)
	}
	if read("state-train/resume.json") == "" {
		t.Error("no checkpoint to resume from")
	}
	if got := read("state-train/resume.json.skipped"); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"a"`) || !strings.Contains(got, `"b"`) {
		t.Errorf("the skipped blocks of both ranks: %q", got)
	}
}
