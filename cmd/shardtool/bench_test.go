package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/bench"
)

// TestBenchOrphan: a rank's process ends with its parent, however long it was to measure.
func TestBenchOrphan(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "shardtool", "bench", "--rank-process", "--", smallSet(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer kill.Stop()
	job := bench.Job{Setting: bench.Setting{GlobalBatch: 10, World: 1, Affinity: "epoch", Tail: "short"}, Duration: time.Hour, Step: time.Millisecond}
	if err := json.NewEncoder(in).Encode(job); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // so that it measures something
	in.Close()
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("it did not end by itself: %v", err)
	}
}

// TestBenchAccounts: a rank's figures add up: the timeline to the wait and the steps, the causes to
// the wait.
func TestBenchAccounts(t *testing.T) {
	t.Parallel()
	var r bench.Report
	text := shardtool(t, "bench", smallSet(t), "--shuffle", "--ranks", "2", "--batch", "20", "--step", "2ms", "--batches", "60", "--json", "--quiet")
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Ranks {
		var line, stalls, steps, samples float64
		var seen bench.Bucket
		for _, b := range k.Line.Buckets {
			line, steps, samples = line+b.Wait, steps+b.Step, samples+b.Samples
			seen.Resident, seen.Goroutines, seen.Files = max(seen.Resident, b.Resident), max(seen.Goroutines, b.Goroutines), max(seen.Files, b.Files)
		}
		if runtime.GOOS == "linux" && (seen.Resident < 1<<20 || seen.Resident > k.Resident || seen.Goroutines < 2 || seen.Files < 3) {
			t.Errorf("rank %d: %d bytes are resident, of %d at most, %d goroutines, %d files", k.Rank, seen.Resident, k.Resident, seen.Goroutines, seen.Files)
		}
		for _, d := range k.Stalls {
			stalls += d
		}
		if math.Abs(line-k.Wait) > 1e-6 || math.Abs(stalls+k.Ready-k.Wait) > 1e-6 || k.Wait+steps > k.Elapsed+1e-6 || steps < 61*0.002 {
			t.Errorf("rank %d: %v waited; %v on the timeline, %v by cause and %v ready; %v in steps, of %v", k.Rank, k.Wait, line, stalls, k.Ready, steps, k.Elapsed)
		}
		if k.Steps != 60 || math.Abs(samples-float64(k.Samples)) > 1e-3 {
			t.Errorf("rank %d: %d steps, %d samples, %v on the timeline", k.Rank, k.Steps, k.Samples, samples)
		}
	}
	if r.Summary.Steps != 120 || r.Verdict.Text == "" || r.Host.CPUs == 0 || r.Data.Samples != smallSamples {
		t.Errorf("%+v", r.Summary)
	}
}
