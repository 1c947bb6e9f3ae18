package main

import (
	"fmt"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
)

// taken is what a stream came to.
type taken struct {
	rate     float64 // decoded bytes per second, after the first batch
	waited   float64 // share of the time, from the outside
	held     int64
	flying   float64
	requests int
	depth    int
}

// tunedFor is how long a stream is measured, the finding of its settings included.
const tunedFor = 10 * time.Second

// tuned streams from a distant store, with all settings as they are by default but for the tuning
// itself.
func (b *bench) tuned(dir string, latency, step time.Duration, off bool) (t taken, err error) {
	below, err := local.New(dir, local.Options{})
	if err != nil {
		return t, err
	}
	store := &distant{Store: below, latency: latency, rate: distantRate}
	ds, err := reader.Open(b.ctx, store, reader.Options{})
	if err != nil {
		return t, err
	}
	defer ds.Close()
	o := shuffled
	o.NoAutotune = off
	s, err := ds.Stream(b.ctx, o)
	if err != nil {
		return t, err
	}
	defer s.Close()
	if _, err := s.Next(b.ctx); err != nil {
		return t, err
	}
	store.mean()
	begin, first := time.Now(), s.Stats()
	for time.Since(begin) < tunedFor {
		time.Sleep(step)
		asked := time.Now()
		if _, err := s.Next(b.ctx); err != nil {
			return t, err
		}
		t.waited += time.Since(asked).Seconds()
	}
	took, end := time.Since(begin).Seconds(), s.Stats()
	t.rate, t.waited = float64(end.Bytes-first.Bytes)/took, t.waited/took
	t.held, t.flying, t.requests, t.depth = end.Held, store.mean(), end.Requests, end.Depth
	return t, nil
}

// distantRate is the bound of the line, in stored bytes a second.
const distantRate = 300e6

// autotune measures streams that find their settings against the same with fixed ones.
func (b *bench) autotune() error {
	dir, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	both := func(latency, step time.Duration) (on, off []taken, err error) {
		for i := range 2 * max(b.times/3, 1) {
			without := i%2 == 0
			t, err := b.tuned(dir, latency, step, without)
			if err != nil {
				return nil, nil, err
			}
			if without {
				off = append(off, t)
			} else {
				on = append(on, t)
			}
		}
		return on, off, nil
	}
	of := func(all []taken, f func(taken) float64) (s table.Sample) {
		for _, t := range all {
			s = append(s, f(t))
		}
		return s
	}
	over := func(on, off []taken, f func(taken) float64) (s table.Sample) {
		for i := range on {
			s = append(s, f(on[i])/max(f(off[i]), 1e-9))
		}
		return s
	}
	for _, c := range []struct {
		latency time.Duration
		goal    float64
	}{{30 * time.Millisecond, 0.95}, {200 * time.Millisecond, 1.1}} {
		on, off, err := both(c.latency, 0)
		if err != nil {
			return err
		}
		rate := func(t taken) float64 { return t.rate }
		last := on[len(on)-1]
		b.AtLeast("autotune", fmt.Sprintf("%v to a byte, %.0f MB/s at most, no step: tuned / fixed", c.latency, distantRate/1e6), over(on, off, rate), "x", c.goal,
			fmt.Sprintf("%.0f MB/s decoded against %.0f with 64 requests; %d requests and a depth of %d after %v", of(on, rate).Median()/1e6, of(off, rate).Median()/1e6,
				last.requests, last.depth, tunedFor))
	}
	held := func(t taken) float64 { return float64(t.held) }
	waited := func(t taken) float64 { return t.waited }
	for _, step := range []time.Duration{4 * time.Millisecond, 10 * time.Millisecond} {
		on, off, err := both(200*time.Millisecond, step)
		if err != nil {
			return err
		}
		last := on[len(on)-1]
		b.AtMost("autotune", fmt.Sprintf("200ms to a byte, a step of %v: share waited, tuned", step), of(on, waited), "", 0.02,
			fmt.Sprintf("%.4f fixed; the start is in it, where one answer's time is 0.02; through turns of epochs; %d requests and a depth of %d after %v", of(off, waited).Median(), last.requests, last.depth, tunedFor))
	}
	const step = 250 * time.Millisecond
	on, off, err := both(200*time.Millisecond, step)
	if err != nil {
		return err
	}
	flying := func(t taken) float64 { return t.flying }
	last := on[len(on)-1]
	detail := fmt.Sprintf("%d requests and a depth of %d after %v", last.requests, last.depth, tunedFor)
	b.AtMost("autotune", fmt.Sprintf("a step of %v: memory held, tuned / fixed", step), over(on, off, held), "x", 0.9,
		fmt.Sprintf("%.0f MB against %.0f; %s", of(on, held).Median()/1e6, of(off, held).Median()/1e6, detail))
	b.AtMost("autotune", fmt.Sprintf("a step of %v: share waited, tuned", step), of(on, waited), "", 0.01, fmt.Sprintf("%.4f fixed", of(off, waited).Median()))
	b.Info("autotune", fmt.Sprintf("a step of %v: requests in flight, tuned / fixed", step), over(on, off, flying), "x",
		fmt.Sprintf("%.1f against %.1f in the mean, behind the first batch", of(on, flying).Median(), of(off, flying).Median()))
	return nil
}
