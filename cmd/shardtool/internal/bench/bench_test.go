package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/stats"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)) }

// TestTimeline: all that is added is in the buckets, however long the run becomes.
func TestTimeline(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	line := newTimeline(time.Second)
	var wait, step, request, size float64
	at := 0.0
	for range 2000 {
		w, s := random.Float64()*0.05, random.Float64()*0.01
		line.batch(at, at+w, at+w+s, stats.Stalls{Request: time.Duration(w * 0.75 * 1e9)}, 3, 100)
		at += w + s
		wait, step, request, size = wait+w, step+s, request+float64(time.Duration(w*0.75*1e9))/1e9, size+100
		line.bucket(at).join(&Bucket{Reading: 4, Looks: 1})
	}
	var got Bucket
	for i := range line.Buckets {
		b := &line.Buckets[i]
		if total := b.Wait + b.Step; total > line.Width*(1+1e-9) || (i < len(line.Buckets)-1 && !near(total, line.Width)) {
			t.Fatalf("bucket %d of %d has %v of %v seconds", i, len(line.Buckets), total, line.Width)
		}
		got.join(b)
	}
	if n := len(line.Buckets); n > mostBuckets || n < mostBuckets/2 {
		t.Errorf("%d buckets", n)
	}
	if !near(got.Wait, wait) || !near(got.Step, step) || !near(got.Stalls[0], request) || !near(got.Bytes, size) || !near(got.Samples, 6000) || got.Looks != 2000 || !near(got.Reading, 4) {
		t.Errorf("%+v; want %v waited, %v in steps, %v in requests, %v bytes", got, wait, step, request, size)
	}
}

func TestSummarize(t *testing.T) {
	a := Rank{Rank: 3, First: 2, Elapsed: 10, Samples: 1000, Bytes: 5000, CPU: 1, Stalls: map[string]float64{"decode": 1}, Memory: 7, Resident: 9}
	a.waits(counted(0.5, 0.1, 0.1, 0.3))
	b := Rank{Rank: 4, First: 1, Elapsed: 5, Samples: 1000, Bytes: 5000, CPU: 1, Stalls: map[string]float64{"decode": 1, "request": 2}}
	b.waits(counted(1, 2))
	s := Summarize([]Rank{a, b})
	if s.Ranks != 2 || s.First != 2 || s.Steps != 6 || !close100(s.WaitP50, 1) || s.WaitP99 != 2 || s.WorstRank != 4 || !near(s.Worst, 0.6) || !near(s.Share, 4./15) ||
		!near(s.Samples, 300) || !near(s.Bytes, 1500) || !near(s.CPU, 0.001) || s.Stalls["decode"] != 2 || s.Stalls["request"] != 2 {
		t.Errorf("%+v", s)
	}
	if !close100(a.WaitP50, 0.1) || a.WaitP99 != 0.5 || a.WaitMax != 0.5 || !near(a.Wait, 1) {
		t.Errorf("%+v", a)
	}
}

// counted is the distribution of some waits.
func counted(all ...float64) *waitCounts {
	w := new(waitCounts)
	for _, s := range all {
		w.add(s)
	}
	return w
}

// close100 reports whether got is want, or up to a hundredth more.
func close100(got, want float64) bool { return got >= want*(1-1e-9) && got <= 1.0101*want }

// TestWaitCounts: quantiles are at most a hundredth off, for any waits.
func TestWaitCounts(t *testing.T) {
	if new(waitCounts).quantile(0.5) != 0 {
		t.Error("the median of nothing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := []float64{0, -1e-9, 1e-12, 3e10} // a clock may be set back; and a wait of a thousand years
	for range 5000 {
		all = append(all, 1e-9*math.Pow(10, 12*random.Float64()))
	}
	w := counted(all...)
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.99, 0.9995} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if got := w.quantile(q); want > 1e-9 && !close100(got, want) {
			t.Errorf("the %v-quantile is %v, want %v", q, got, want)
		}
	}
	if w.n != uint64(len(all)) || w.most != 3e10 || w.quantile(1) > w.most {
		t.Errorf("%d waits, the longest %v", w.n, w.most)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		stalls map[string]float64
		worst  float64
		step   float64
		want   string
	}{
		{map[string]float64{"request": 1}, 0.01, 0.1, "step"},
		{map[string]float64{"request": 5, "decode": 1}, 0.3, 0.1, "storage"},
		{map[string]float64{"throttled": 5}, 0.3, 0.1, "storage"},
		{map[string]float64{"decode": 5}, 0.3, 0, "processors"},
		{map[string]float64{"memory": 5}, 0.3, 0, "memory"},
		{nil, 0.3, 0, "step"},
	} {
		s := Summary{Stalls: c.stalls, Worst: c.worst}
		if v := Judge(&s, c.step); v.Holds != c.want || v.Text == "" {
			t.Errorf("%+v: %+v", c, v)
		}
	}
	for _, cause := range Causes() {
		if holds[cause][1] == "" {
			t.Errorf("nothing is advised about %s", cause)
		}
	}
}

// host is a machine with known rates.
func host(rate func(s Setting) float64) func(context.Context, Setting) (Summary, error) {
	return func(_ context.Context, s Setting) (Summary, error) {
		r := rate(s)
		if r < 0 {
			return Summary{}, &RankError{0, 2}
		}
		return Summary{Samples: r, Memory: s.Memory}, nil
	}
}

// TestSweep: each axis finds the cheapest point with the best rate, and the recommendations are
// confirmed together.
func TestSweep(t *testing.T) {
	saturates := func(s Setting) float64 {
		workers, requests := 2.0, 64.0 // what the reader chooses
		if s.Workers > 0 {
			workers = float64(s.Workers)
		}
		if s.Requests > 0 {
			requests = float64(s.Requests)
		}
		rate := min(1000*workers, 100*requests, 3500)
		if s.Memory > 0 && s.Memory < 32<<20 {
			rate /= 2
		}
		if s.Memory > 100<<20 {
			return -1 // there is no more
		}
		return rate
	}
	runs := 0
	base := Sweeper{
		Run: host(saturates), Base: Setting{Shuffle: true}, Memory: 64 << 20, CPUs: 2, Requests: 64,
		Say: func(n, of int, _ string) {
			if runs = n; n > of {
				t.Errorf("measurement %d of %d", n, of)
			}
		},
	}
	s, err := base.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(s.Flags, " "), "--workers 4 --requests 32 --memory 32MiB"; got != want {
		t.Errorf("recommended %q, want %q: %q", got, want, s.Reasons)
	}
	if s.Best != 3200 || s.Base != 2000 || s.Margin != 0.05 || runs < 10 {
		t.Errorf("%+v after %d", s, runs)
	}
	for _, p := range s.Axes[2].Points {
		if p.Failed != (p.Value == "128 MiB") {
			t.Errorf("%+v", p)
		}
	}
	for _, p := range s.Axes[1].Points {
		if p.Base != (p.Value == "as tuned") {
			t.Errorf("%+v", p)
		}
	}
	// With a step, less is sufficient.
	base.Need = 100
	if s, err = base.Sweep(t.Context()); err != nil || strings.Join(s.Flags, " ") != "--workers 1 --requests 4 --memory 16MiB" || s.Best != 200 {
		t.Errorf("%v: %+v", err, s)
	}
	// A recommendation that impairs another one is dropped if it is only cheaper.
	base.Need = 0
	base.Run = host(func(s Setting) float64 {
		if s.Workers > 2 && s.Memory > 0 && s.Memory < 64<<20 {
			return 10
		}
		return saturates(s)
	})
	if s, err = base.Sweep(t.Context()); err != nil || strings.Join(s.Flags, " ") != "--workers 4" || s.Best != 3500 || !strings.Contains(strings.Join(s.Reasons, "\n"), "only cheaper") {
		t.Errorf("%v: %+v", err, s)
	}
	// If that does not help either, nothing is recommended.
	base.Run = host(func(s Setting) float64 {
		if s.Workers > 2 && runs > 16 {
			return 10
		}
		return saturates(s)
	})
	if s, err = base.Sweep(t.Context()); err != nil || len(s.Flags) > 0 || s.Best != s.Base || !strings.Contains(strings.Join(s.Reasons, "\n"), "nothing is recommended") {
		t.Errorf("%v: %+v", err, s)
	}
	var text strings.Builder
	r := Report{Sweep: s, Ranks: []Rank{{Elapsed: 1, Steps: 1}}}
	r.Finish()
	if err := r.Text(&text); err != nil || !strings.Contains(strings.Join(strings.Fields(text.String()), " "), "128 MiB failed") {
		t.Errorf("%v: %s", err, text.String())
	}
	// Another order is recommended only for a gain.
	base.Run = host(func(s Setting) float64 { return 100 + float64(s.RunBlocks)/8 })
	if s, err = base.Sweep(t.Context()); err != nil || s.Axes[3].Enough != -1 {
		t.Errorf("%v: %+v", err, s)
	}
	base.Run = host(func(s Setting) float64 { return 100 * float64(1+min(s.RunBlocks, 4)) })
	if s, err = base.Sweep(t.Context()); err != nil || !slices.Contains(s.Flags, "--run-blocks 4") {
		t.Errorf("%v: %+v", err, s)
	}
	stop := errors.New("stop")
	base.Run = func(context.Context, Setting) (Summary, error) { return Summary{}, stop }
	if _, err = base.Sweep(t.Context()); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestThisHost(t *testing.T) {
	if h := ThisHost(); h.CPUs < 1 || h.Usable < 1 || h.System == "" {
		t.Errorf("%+v", h)
	}
}

// TestSpawn runs processes that answer, fail, print nonsense and do not end.
func TestSpawn(t *testing.T) {
	shell := func(script string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "sh", "-c", script) }
	}
	ranks, err := Spawn(t.Context(), shell(`read job; echo '{"steps":7}'`), Job{}, 2, 3)
	if err != nil || len(ranks) != 3 || ranks[2].Steps != 7 {
		t.Errorf("%v: %+v", err, ranks)
	}
	_, err = Spawn(t.Context(), shell(`read job; case $job in *'"rank":1,'*) exit 3;; esac; exec sleep 60`), Job{}, 0, 3)
	var failed *RankError
	if !errors.As(err, &failed) || *failed != (RankError{1, 3}) {
		t.Error(err)
	}
	if _, err = Spawn(t.Context(), shell(`kill -9 $$`), Job{}, 0, 1); !errors.As(err, &failed) || failed.Code >= 0 || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	orphan := make(chan struct{})
	if j, err := ReadJob(strings.NewReader(`{"rank":3}`), func() { close(orphan) }); err != nil || j.Rank != 3 {
		t.Errorf("%v: %+v", err, j)
	}
	<-orphan
	if _, err = Spawn(t.Context(), shell(`echo no`), Job{}, 0, 1); err == nil || !strings.Contains(err.Error(), "it reported no measurement") {
		t.Error(err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	if _, err = Spawn(ctx, shell(`exec sleep 60`), Job{}, 0, 2); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	write := func(v any) {
		text, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := Report{Version: Version, Time: time.Now().UTC(), StepSeconds: 0.02, Price: 4, Ranks: []Rank{{Elapsed: 10, Samples: 100, Stalls: map[string]float64{"decode": 1}}}, Data: Data{Digest: "a"}}
	r.Ranks[0].waits(counted(1, 0.5))
	r.Finish()
	if !near(r.Lost, 0.6) {
		t.Errorf("lost %v", r.Lost)
	}
	write(&r)
	back, err := Load(file)
	if err != nil || fmt.Sprint(back.Summary) != fmt.Sprint(r.Summary) {
		t.Fatalf("%v: %+v", err, back)
	}
	now := r
	now.Baseline, now.Data.Digest, now.StepSeconds = back, "b", 0.03
	var text strings.Builder
	if err := now.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AGAINST", "×1.00", "not the same: the content of the data set (a before, b now)", "not the same: the step (20ms before, 30ms now)", "lost "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	write(&Report{Version: 99, Ranks: r.Ranks})
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "no report") {
		t.Error(err)
	}
	if _, err := Load(file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadJob(strings.NewReader(""), func() {}); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
