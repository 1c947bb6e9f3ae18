package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// disturbed precedes the program in the jobs' PATH. It kills one part by SIGKILL the first time,
// like a machine that fails, and stops one by SIGUSR1, as Slurm does before a time limit, both when
// they have put their first shard. If a pack ends before it is hit, its last object is deleted.
const disturbed = `#!/usr/bin/env bash
task=${SLURM_ARRAY_TASK_ID:-}
case "$1-$task" in
pack-5) sig=KILL code=137 ;;
pack-2) sig=USR1 code=5 ;;
*) exec %[1]q "$@" ;;
esac
mkdir %[2]q/hit-$task 2>/dev/null || exec %[1]q "$@"
%[1]q "$@" &
pid=$!
until compgen -G %[3]q"/train-p000$task-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.005; done
kill -$sig $pid 2>/dev/null
wait $pid
got=$?
[ $got != 0 ] || { rm -f %[3]q/part-train-000$task-of-0008.bin; got=$code; }
exit $got
`

// TestPack packs real files as an array of eight on four nodes. One task is killed, and one is
// stopped and requeued; the missing parts are submitted again, and committed. The data set equals
// one whose parts are packed one after the other without Slurm.
func TestPack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := start(ctx, t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	script, src := root+"/deploy/slurm/pack.sbatch", root+"/testdata/demo"
	real, out, want := c.dir+"/real/shardtool", c.dir+"/out", c.dir+"/want"
	build := exec.CommandContext(ctx, "go", "build", "-o", real, "./cmd/shardtool")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	err = errors.Join(os.Mkdir(c.dir+"/bin", 0o755), os.WriteFile(c.dir+"/bin/shardtool", fmt.Appendf(nil, disturbed, real, c.dir, out), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, "PATH="+c.dir+"/bin:"+os.Getenv("PATH"))

	flags := []string{src, "--name", "train", "--shard-size", "32KiB", "--block-size", "16KiB"}
	submit := func(tasks string) (array, commit string) {
		array = c.run(ctx, t, "sbatch", append([]string{"--parsable", "--array=" + tasks, script, "8", out}, flags...)...)
		commit = c.run(ctx, t, "sbatch", "--parsable", "--dependency=afterok:"+array, "--kill-on-invalid-dep=yes", script, "8", out)
		return array, commit
	}
	array, commit := submit("0-7")
	c.gone(ctx, t, array, commit)
	if job := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", array+"_2"); !strings.Contains(job, "JobState=COMPLETED") || !strings.Contains(job, "Restarts=1 ") {
		t.Errorf("the task that was stopped: %s", job)
	}
	if job := c.run(ctx, t, "scontrol", "--oneliner", "show", "job", array+"_5"); !strings.Contains(job, "JobState=FAILED") || !strings.Contains(job, "ExitCode=137:0") {
		t.Errorf("the task that was killed: %s", job)
	}
	if _, err := os.Stat(out + "/manifest.json"); err == nil {
		t.Fatal("published with a part missing")
	}

	missing, err := c.try(ctx, real, "missing", out, "--parts", "8")
	var exit *exec.ExitError
	if missing != "5" || !errors.As(err, &exit) || exit.ExitCode() != 6 {
		t.Fatalf("missing: %q, %v", missing, err)
	}
	array, commit = submit(missing)
	c.gone(ctx, t, array, commit)

	for part := range 8 {
		c.run(ctx, t, real, slices.Concat([]string{"pack"}, flags, []string{want, "--quiet", "--parts", "8", "--part", fmt.Sprint(part)})...)
	}
	c.run(ctx, t, real, "commit", want, "--parts", "8")
	c.run(ctx, t, "diff", "-r", "-x", ".*", want, out)
	c.run(ctx, t, real, "verify", out, "--deep")
	if keys := c.run(ctx, t, real, "ls", out); strings.Count(keys, "\n")+1 != 205 {
		t.Errorf("%d keys", strings.Count(keys, "\n")+1)
	}
}
