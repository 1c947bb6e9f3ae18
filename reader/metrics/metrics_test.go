package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shardtool/shardtool/internal/figures/stats"
)

// counted is a stream with statistics.
type counted stats.Stream

func (c counted) Stats() stats.Stream { return stats.Stream(c) }

// gather reads all figures: name{label=value,…} by value.
func gather(t *testing.T, c *Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// TestCollector: ranks are separate, streams of a rank are summed, and no counter decreases when a
// stream ends.
func TestCollector(t *testing.T) {
	c := New()
	if got := gather(t, c); len(got) != 0 {
		t.Fatalf("nothing is watched: %v", got)
	}
	one := counted{Batches: 3, Samples: 30, Bytes: 300, Elapsed: 2 * time.Second, FirstWait: time.Second, Held: 7,
		Stalls: stats.Stalls{Request: 250 * time.Millisecond, Map: time.Second}, Pieces: stats.Pieces{Reading: 2, Paused: 1}, Evicted: 5,
		Requests: 24, Depth: 9, Decisions: 2}
	stop := c.Watch(one, 4)
	defer c.Watch(counted{Batches: 1}, 5)()
	for range 3 {
		got := gather(t, c)
		for name, want := range map[string]float64{
			"shardtool_stream_batches_total rank=4": 3, "shardtool_stream_batches_total rank=5": 1, "shardtool_stream_bytes_total rank=4": 300,
			"shardtool_stream_wait_seconds_total cause=request rank=4": 0.25, "shardtool_stream_wait_seconds_total cause=map rank=4": 1,
			"shardtool_stream_wait_seconds_total cause=throttled rank=5": 0, "shardtool_stream_open_seconds_total rank=4": 2,
			"shardtool_stream_evicted_blocks_total rank=4": 5, "shardtool_stream_tunings_total rank=4": 2,
		} {
			if v, there := got[name]; !there || v != want {
				t.Errorf("%s is %v (%v), want %v", name, v, there, want)
			}
		}
		stop() // the counters stay
	}
	if got := gather(t, c); got["shardtool_stream_pieces at=reading rank=4"] != 0 || got["shardtool_stream_first_wait_seconds rank=4"] != 0 {
		t.Errorf("gauges of a stream that has ended: %v", got)
	}
	defer c.Watch(one, 4)()
	got := gather(t, c)
	if got["shardtool_stream_batches_total rank=4"] != 6 || got["shardtool_stream_pieces at=reading rank=4"] != 2 || got["shardtool_stream_first_wait_seconds rank=4"] != 1 ||
		got["shardtool_stream_held_bytes_max rank=4"] != 7 || got["shardtool_stream_pieces at=paused rank=4"] != 1 ||
		got["shardtool_stream_requests_limit rank=4"] != 24 || got["shardtool_stream_depth_batches rank=4"] != 9 || got["shardtool_stream_tunings_total rank=4"] != 4 {
		t.Errorf("the next stream of the rank: %v", got)
	}
}

// TestConcurrent watches, stops and gathers concurrently.
func TestConcurrent(t *testing.T) {
	c := New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				stop := c.Watch(counted{Batches: 1}, i%2)
				gather(t, c)
				stop()
			}
		})
	}
	wg.Wait()
	if got := gather(t, c); got["shardtool_stream_batches_total rank=0"] != 100 || got["shardtool_stream_batches_total rank=1"] != 100 {
		t.Error(got)
	}
}

// TestExamples: the rules and the dashboard use only existing metrics, labels and causes.
func TestExamples(t *testing.T) {
	c := New()
	c.Watch(counted{}, 0)
	names, causes := map[string]bool{}, map[string]bool{}
	cause := regexp.MustCompile(`cause=(\w+)`)
	for name := range gather(t, c) {
		names[strings.Fields(name)[0]] = true
		if m := cause.FindStringSubmatch(name); m != nil {
			causes[m[1]] = true
		}
	}
	asked := regexp.MustCompile(`shardtool_stream_\w+`)
	askedCause := regexp.MustCompile(`cause=~?\\?"(\w+)`)
	for _, file := range []string{"alerts.yml", "dashboard.json"} {
		text, err := os.ReadFile("../../deploy/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := asked.FindAllString(string(text), -1)
		if len(found) < 5 {
			t.Errorf("%s asks for %q", file, found)
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		for _, m := range askedCause.FindAllStringSubmatch(string(text), -1) {
			if !causes[m[1]] {
				t.Errorf("%s: there is no cause %s", file, m[1])
			}
		}
	}
	var dashboard struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	text, err := os.ReadFile("../../deploy/prometheus/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) < 5 {
		t.Fatalf("%+v", dashboard)
	}
	for i, p := range dashboard.Panels {
		if p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d: %+v", i, p)
		}
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") || !asked.MatchString(target.Expr) {
				t.Errorf("panel %q: %s", p.Title, target.Expr)
			}
		}
	}
}
