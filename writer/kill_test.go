package writer_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
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

// TestKilledProcess kills a packing process at random moments. The data set is then the old one or
// the new one, and the same pack with Resume ends with the bytes of one that was left alone,
// without reading everything again.
func TestKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	const rounds = 10
	base := t.TempDir()
	baseJob := childJob{Dir: base, Tag: "base", Items: 40}
	if r := baseJob.run(t); r.Error != "" {
		t.Fatal(r.Error)
	}
	for name, mode := range map[string]writer.Mode{"create": writer.ModeCreate, "overwrite": writer.ModeOverwrite, "append": writer.ModeAppend} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := func() string {
				if mode == writer.ModeCreate {
					return t.TempDir()
				}
				return copyDir(t, base)
			}
			job := childJob{Dir: fresh(), Tag: "new", Items: 90, Pause: time.Millisecond}
			job.Mode = mode
			job.Plain = mode == writer.ModeAppend
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
				if _, err := objstore.TraitsOf(st).Sweep(t.Context(), 0); err != nil {
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
				if shards := (before - 3) / 2; mode == writer.ModeCreate && shards > 0 && r.BytesRead > all-int64(shards)*(64<<10-16<<10)/2 {
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

// TestKilledLeavesNoNames: what a killed process leaves of an unfinished put is swept, and never
// listed.
func TestKilledLeavesNoNames(t *testing.T) {
	job := childJob{Dir: t.TempDir(), Tag: "x", Items: 400, Pause: 20 * time.Millisecond}
	st, err := local.New(job.Dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	swept := 0
	for wait := 300 * time.Millisecond; swept == 0 && wait < time.Minute; wait *= 2 { // a slow one has begun nothing yet
		if !killAfter(t, &job, wait) {
			t.Fatal("it was to be killed")
		}
		if swept, err = objstore.TraitsOf(st).Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		job.Resume = true
	}
	if swept == 0 {
		t.Fatal("no temporary file was swept")
	}
	for name := range objects(t, st) {
		if !strings.HasPrefix(name, "d-") {
			t.Fatalf("%s is there", name)
		}
	}
}

// TestKilledIndex kills processes that index archives anew, each with other blocks. The current
// generation and all before it are whole after each kill, and one that is left alone ends well.
func TestKilledIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	dir := t.TempDir()
	st := localStore(t, dir)
	job := childJob{Dir: dir, BlockSize: 4096}
	for i := range 12 {
		name := fmt.Sprintf("wds/%02d.tar", i)
		replace(t, st, name, plainTar(t, fmt.Sprintf("%02d", i), 40))
		job.Index = append(job.Index, name)
	}
	begin := time.Now()
	if r := job.run(t); r.Error != "" {
		t.Fatal(r.Error)
	}
	took := time.Since(begin)
	job.Mode = writer.ModeOverwrite
	rng := rand.New(rand.NewPCG(3, 1))
	killed, sidecars := 0, len(objects(t, st))
	for trial := range *trials {
		job.BlockSize = 4096 + 512*rng.Int64N(64)
		if killAfter(t, &job, time.Duration(rng.Int64N(int64(took)))) {
			killed++
		}
		checkGeneration(t, st, "")
		if trial%10 == 9 || trial == *trials-1 {
			checkGenerations(t, st)
		}
	}
	sidecars = len(objects(t, st)) - sidecars
	job.BlockSize = 8192
	r := job.run(t)
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	generations := checkGenerations(t, st)
	if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err != nil {
		t.Fatal(err)
	}
	checkGeneration(t, st, "")
	if n := len(objects(t, st)); n != 2*len(job.Index)+3 {
		t.Errorf("%d objects after a prune: %q", n, objectNames(t, st))
	}
	t.Logf("%d of %d were killed, %d objects more; %d generations are whole", killed, *trials, sidecars, generations)
	if killed == 0 {
		t.Error("none was killed")
	}
}

// plainTar is an archive of n samples.
func plainTar(t *testing.T, prefix string, n int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := range n {
		data := bytes.Repeat([]byte{byte(i)}, 300+i*97%2000)
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s/%04d.bin", prefix, i), Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// checkGeneration reads all of a generation, the current one where it is not named.
func checkGeneration(t *testing.T, st objstore.Store, generation string) {
	t.Helper()
	d, err := reader.Open(t.Context(), st, reader.Options{Generation: generation})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: true}); err != nil || !r.OK() {
		t.Fatalf("generation %d: %+v, %v", d.Info().Generation, r, err)
	}
}

// checkGenerations reads all generations, and returns how many there are.
func checkGenerations(t *testing.T, st objstore.Store) (n int) {
	t.Helper()
	for info, err := range st.List(t.Context(), "manifest-") {
		if err != nil {
			t.Fatal(err)
		}
		// Tables that a killed process put and did not publish are whole, too.
		checkGeneration(t, st, strings.TrimSuffix(strings.TrimPrefix(info.Name, "manifest-"), ".bin"))
		n++
	}
	return n
}
