package main

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestMetrics reads the metrics of a running cat. Without a host in the address they are not
// visible from other hosts.
func TestMetrics(t *testing.T) {
	t.Parallel()
	out := smallSet(t)
	cmd := exec.CommandContext(t.Context(), "shardtool", "cat", out, "--epochs", "0", "--rank", "2", "--world-size", "4", "--metrics", ":0", "--stats-every", "5ms")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer killLate(cmd)()
	go io.CopyN(io.Discard, stdout, 1<<20) // then cat blocks
	lines := bufio.NewScanner(said)
	address, logged := "", ""
	for lines.Scan() && (address == "" || logged == "") {
		if rest, ok := strings.CutPrefix(lines.Text(), "metrics at "); ok {
			address = rest
		}
		if strings.Contains(lines.Text(), "msg=stream rank=2 batches=") {
			logged = lines.Text()
		}
	}
	go io.Copy(io.Discard, said)
	if !strings.HasPrefix(address, "http://127.0.0.1:") || !strings.Contains(logged, "wait_share=") {
		t.Fatalf("it says %q and %q", address, logged)
	}
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`shardtool_stream_batches_total{rank="2"} `, `shardtool_stream_wait_seconds_total{cause="decode",rank="2"} `, "go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if other, err := http.Get(strings.TrimSuffix(address, "/metrics")); err != nil {
		t.Error(err)
	} else if other.Body.Close(); other.StatusCode != http.StatusNotFound {
		t.Error(other.Status)
	}
	stdout.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

// TestMetricsPorts: processes that are given the same port get one each, until all are in use.
func TestMetricsPorts(t *testing.T) {
	t.Parallel()
	first, err := listenMetrics(t.Context(), ":0", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	address := first.Addr().String()
	if _, err := listenMetrics(t.Context(), address, 1); err == nil || exitCode(err) != exitUsage {
		t.Fatalf("one port for two: %v", err)
	}
	for n := 0; ; n++ {
		next, err := listenMetrics(t.Context(), address, 3)
		if err != nil {
			if !strings.Contains(err.Error(), "all ports from") || exitCode(err) != exitUsage {
				t.Fatal(err)
			}
			break
		}
		defer next.Close()
		if n == 2 {
			t.Fatalf("%s is the fourth of three", next.Addr())
		}
	}
}
