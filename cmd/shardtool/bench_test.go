package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/bench"
)

// TestBenchOrphan: a rank's process ends with its parent, however long it was to measure.
func TestBenchOrphan(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "shardtool", "bench", "--rank-process")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer killLate(cmd)()
	job := bench.Job{Read: bench.Read{Address: smallSet(t)}, Setting: bench.Setting{Order: bench.Order{GlobalBatch: 10, World: 1, Affinity: "epoch", Tail: "short"}}, Duration: time.Hour, Step: time.Millisecond}
	if err := json.NewEncoder(in).Encode(job); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // so that it measures something
	in.Close()
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("it did not end by itself: %v", err)
	}
}

// TestBenchAccounts: a rank's figures add up: the causes to the wait, the wait and the steps to the
// time.
func TestBenchAccounts(t *testing.T) {
	t.Parallel()
	var r bench.Report
	text := shardtool(t, "bench", smallSet(t), "--shuffle", "--ranks", "2", "--batch", "20", "--step", "2ms", "--batches", "60", "--json", "--quiet")
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Ranks {
		did, waits := &k.Work, &k.Waits
		stalls := 0.0
		for _, d := range waits.Stalls {
			stalls += d
		}
		if steps := 61 * waits.Step; math.Abs(stalls+waits.Ready-did.Wait) > 1e-6 || math.Abs(did.Wait+steps-did.Elapsed) > 1e-6 || steps < 61*0.002 {
			t.Errorf("rank %d: %v waited; %v by cause and %v ready; %v in steps, of %v", did.Rank, did.Wait, stalls, waits.Ready, steps, did.Elapsed)
		}
		if did.Steps != 60 || did.Samples == 0 {
			t.Errorf("rank %d: %d steps, %d samples", did.Rank, did.Steps, did.Samples)
		}
	}
	if r.Summary.Rates.Steps != 120 || r.Verdict.Text == "" || r.Host.CPUs == 0 || r.Data.Samples != smallSamples {
		t.Errorf("%+v", r.Summary)
	}
}
