package writer_test

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// copyDir copies the files of a folder that has no folders.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestKilledProcess kills a packing process at random moments. The data set is then the old one or the new one, and the
// same pack with Resume ends with the bytes of one that was left alone, without reading everything again.
func TestKilledProcess(t *testing.T) {
	const rounds = 10
	base := t.TempDir()
	baseJob := childJob{Dir: base, Tag: "base", Items: 40}
	if r := baseJob.run(t); r.Error != "" {
		t.Fatal(r.Error)
	}
	for name, mode := range map[string]writer.Mode{"create": writer.Create, "overwrite": writer.Overwrite, "append": writer.Append} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := func() string {
				if mode == writer.Create {
					return t.TempDir()
				}
				return copyDir(t, base)
			}
			job := childJob{Dir: fresh(), Tag: "new", Items: 90, Pause: time.Millisecond}
			job.Mode = mode
			job.Plain = mode == writer.Append
			begin := time.Now()
			clean := job.run(t)
			took := time.Since(begin)
			if clean.Error != "" {
				t.Fatal(clean.Error)
			}
			want := objects(t, localStore(t, job.Dir))
			old, all := digestOf(t, localStore(t, fresh())), job.source().payloadBytes()
			rng := rand.New(rand.NewPCG(uint64(mode), 1))
			saved, resumed := 0, 0
			for round := 0; round < rounds || saved == 0 && round < 10*rounds; round++ {
				job.Dir = fresh()
				killed := killAfter(t, &job, time.Duration(rng.Int64N(int64(took))))
				st := localStore(t, job.Dir)
				now := digestOf(t, st)
				if now != old && now != clean.Result.Digest.String() {
					t.Fatalf("%s is published, neither old nor new", now)
				}
				before := len(objects(t, st))
				again := job
				again.Pause, again.Resume = 0, true
				r := again.run(t)
				if r.Error != "" {
					t.Fatalf("resume (killed: %v): %s", killed, r.Error)
				}
				if _, err := st.Sweep(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				sameObjects(t, "resumed", objects(t, st), want)
				if r.Result.Digest != clean.Result.Digest || r.Result.Adopted+r.Result.Written != int64(job.Items) {
					t.Fatalf("%+v", r.Result)
				}
				if r.Result.Adopted > 0 {
					saved++
				}
				if r.BytesRead < all {
					resumed++
				}
				// What the shards in place hold is not read again: only what belongs to later ones.
				if shards := (before - 3) / 2; mode == writer.Create && shards > 0 && r.BytesRead > all-int64(shards)*(64<<10-16<<10)/2 {
					t.Errorf("%d objects in place, %d of %d bytes read again", before, r.BytesRead, all)
				}
			}
			if saved == 0 || resumed < saved {
				t.Fatalf("%d rounds found shards in place, %d read less than all", saved, resumed)
			}
		})
	}
}

// killAfter starts a job and kills it; false when it had ended before.
func killAfter(t *testing.T, job *childJob, d time.Duration) bool {
	t.Helper()
	cmd := job.command(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "begin") {
		t.Fatalf("%q %v", line, err)
	}
	time.Sleep(d)
	_ = cmd.Process.Kill()
	return cmd.Wait() != nil
}

// TestKilledLeavesNoNames: what a killed process leaves of an unfinished put is swept, and never listed.
func TestKilledLeavesNoNames(t *testing.T) {
	job := childJob{Dir: t.TempDir(), Tag: "x", Items: 400, Pause: 20 * time.Millisecond}
	if !killAfter(t, &job, 300*time.Millisecond) {
		t.Fatal("it was to be killed")
	}
	st, err := local.New(job.Dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := st.Sweep(t.Context(), 0); err != nil || n == 0 {
		t.Fatalf("%d temporary files swept, %v", n, err)
	}
	for name := range objects(t, st) {
		if !strings.HasPrefix(name, "d-") {
			t.Fatalf("%s is there", name)
		}
	}
}
