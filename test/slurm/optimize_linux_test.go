package slurm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// disturbing precedes the program of the page. In the middle of its part, the first time, task 2
// kills itself, and task 5 waits until it is stopped.
const disturbing = `
import os, pathlib, signal, time
task = os.environ.get("SLURM_ARRAY_TASK_ID", "")

def disturbed(samples):
    def made(path):
        if task in ("2", "5") and path.stem.endswith("9"):
            mark = pathlib.Path("hit-" + task)
            if not mark.exists():
                mark.touch()
                if task == "2":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(120)
        return samples(path)
    return made

`

// TestOptimize runs the program of docs/clusters.md as an array. One task is killed, and one is
// stopped and requeued; the missing part is submitted again. The data set equals one that a process
// makes alone, and one that the tasks of srun make.
func TestOptimize(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := start(ctx, t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := c.dir + "/bin/shardtool"
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/shardtool")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c.env = append(c.env, "SHARDTOOL_BINARY="+bin, "PYTHONPATH="+root+"/python/src", "PYTHONDONTWRITEBYTECODE=1")
	page, err := os.ReadFile(root + "/docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- tested: slurm -->\n```python\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no program")
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// One process for each part, so that SIGKILL ends the task. make.py has another function, so the
	// source is named.
	program := strings.Replace(string(found[1]), "parts=8", "workers=0, source='test', parts=8", 1)
	write("make.py", disturbing+strings.Replace(program, "optimize(samples,", "optimize(disturbed(samples),", 1))
	write("alone.py", strings.Replace(program, `"out"`, `"alone"`, 1))
	write("srun.py", strings.Replace(program, `"out"`, `"srun"`, 1))
	if err := os.Mkdir(c.dir+"/raw", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 80 {
		write(fmt.Sprintf("raw/f%02d.txt", i), strings.Repeat("a line of text\n", 5))
	}

	array := c.run(ctx, t, "sbatch", "--parsable", "--array=0-7", root+"/deploy/slurm/optimize.sbatch", "make.py")
	c.until(ctx, t, "task 5 to wait", func() (string, bool) {
		_, err := os.Stat(c.dir + "/hit-5")
		return "", err == nil
	})
	c.run(ctx, t, "scancel", "--batch", "--signal=USR1", array+"_5")
	c.gone(ctx, t, array)
	if job := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", array+"_5"); !strings.Contains(job, "JobState=COMPLETED") || !strings.Contains(job, "Restarts=1 ") {
		t.Errorf("the task that was stopped: %s", job)
	}
	if job := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", array+"_2"); !strings.Contains(job, "JobState=FAILED") || !strings.Contains(job, "ExitCode=137:0") {
		t.Errorf("the task that was killed: %s", job)
	}
	missing, err := c.try(ctx, bin, "missing", "out", "--parts", "8")
	if missing != "2" || err == nil {
		t.Fatalf("missing: %q, %v", missing, err)
	}
	c.gone(ctx, t, c.run(ctx, t, "sbatch", "--parsable", "--array="+missing, root+"/deploy/slurm/optimize.sbatch", "make.py"))

	c.run(ctx, t, "python3", "alone.py")
	c.run(ctx, t, "diff", "-r", "-x", ".*", c.dir+"/alone", c.dir+"/out")
	c.run(ctx, t, "srun", "--ntasks=3", "python3", "srun.py")
	c.run(ctx, t, "diff", "-r", "-x", ".*", c.dir+"/alone", c.dir+"/srun")
	if keys := c.run(ctx, t, bin, "ls", c.dir+"/out"); strings.Count(keys, "\n")+1 != 400 {
		t.Errorf("%d keys", strings.Count(keys, "\n")+1)
	}
}
