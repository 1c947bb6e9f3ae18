package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
)

// accounts measures what the account of waits costs, and holds its sum against what a consumer
// measures itself.
func (b *bench) accounts() error {
	if err := b.accountsCost(); err != nil {
		return err
	}
	dir, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name          string
		latency, step time.Duration
	}{
		{"decoding is waited for", 0, 0},
		{"requests of 100ms are waited for", 100 * time.Millisecond, 0},
		{"requests of 100ms, and a step that is too short for them", 100 * time.Millisecond, 2 * time.Millisecond},
	} {
		var share table.Sample
		var waited time.Duration
		for range b.times {
			ratio, took, err := b.accounted(dir, c.latency, c.step)
			if err != nil {
				return err
			}
			share, waited = append(share, ratio), took
		}
		b.Within("accounts", "causes / wait measured from outside: "+c.name, share, "x", 0.02, fmt.Sprintf("%.1f s of waiting, the first batch included", waited.Seconds()))
	}
	return nil
}

// accounted streams some epochs and returns what the account has of what Next took.
func (b *bench) accounted(dir string, latency, step time.Duration) (ratio float64, waited time.Duration, err error) {
	near, err := local.New(dir, local.Options{})
	if err != nil {
		return 0, 0, err
	}
	var store objstore.Store = near
	o := shuffled
	o.Epochs = 1
	if latency > 0 {
		store, o.Requests = &distant{Store: near, latency: latency, rate: distantRate}, 16 // so that there is something to wait for
	}
	ds, err := reader.Open(b.ctx, store, reader.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer ds.Close()
	s, err := ds.Stream(b.ctx, o)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	for {
		asked := time.Now()
		_, err := s.Next(b.ctx)
		waited += time.Since(asked)
		if errors.Is(err, io.EOF) {
			return s.Stats().Stalls.Total().Seconds() / waited.Seconds(), waited, nil
		}
		if err != nil {
			return 0, 0, err
		}
		time.Sleep(step)
	}
}

// accountsCost runs the benchmark of the package, which times the account's calls alone.
func (b *bench) accountsCost() error {
	test := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkAccounts$/./batch=256", "-benchtime", fmt.Sprintf("%dx", max(b.times, 3)), "./reader")
	test.Stderr = os.Stderr
	out, err := test.Output()
	if err != nil {
		return fmt.Errorf("the benchmark of the accounts: %w\n%s", err, out)
	}
	rows := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "BenchmarkAccounts/") {
			continue
		}
		found := map[string]float64{}
		for i := 1; i < len(fields); i++ {
			if v, err := strconv.ParseFloat(fields[i-1], 64); err == nil {
				found[fields[i]] = v
			}
		}
		median, ok := found["cost"]
		if !ok {
			return fmt.Errorf("the benchmark of the accounts: no cost in %q", line)
		}
		kind := strings.Split(fields[0], "/")[1]
		b.AtMost("accounts", "cost, of the processor time of a stream of "+kind, table.Sample{found["cost-low"], median, found["cost-high"]}, "", 0.01,
			"the calls of the account timed alone, for every block and batch of the stream")
		rows++
	}
	if rows != 2 {
		return fmt.Errorf("the benchmark of the accounts: %d rows of 2:\n%s", rows, out)
	}
	return nil
}
