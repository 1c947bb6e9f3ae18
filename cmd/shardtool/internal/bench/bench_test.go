package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)) }

func TestSummarize(t *testing.T) {
	a := Rank{Work{Rank: 3, First: 2, Elapsed: 10, Samples: 1000, Bytes: 5000, CPU: 1}, Waits{Stalls: map[string]float64{"decode": 1}}, Use{Memory: 7, Resident: 9}}
	a.count(counted(0.5, 0.1, 0.1, 0.3))
	b := Rank{Work{Rank: 4, First: 1, Elapsed: 5, Samples: 1000, Bytes: 5000, CPU: 1}, Waits{Stalls: map[string]float64{"decode": 1, "request": 2}}, Use{Memory: 7, Resident: 8}}
	b.count(counted(1, 2))
	s := Summarize([]Rank{a, b})
	if got, w := &s.Rates, &s.Waits; got.Ranks != 2 || got.First != 2 || got.Steps != 6 || !close100(w.P50, 1) || w.P99 != 2 || got.WorstRank != 4 || !near(got.Worst, 0.6) || !near(w.Share, 4./15) ||
		!near(got.Samples, 300) || !near(got.Bytes, 1500) || !near(got.CPU, 0.001) || w.Stalls["decode"] != 2 || w.Stalls["request"] != 2 || s.Use.Memory != 7 || s.Use.Resident != 9 {
		t.Errorf("%+v", s)
	}
	if w := &a.Waits; !close100(w.P50, 0.1) || w.P99 != 0.5 || w.Max != 0.5 || !near(a.Work.Wait, 1) {
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
		s := Summary{Rates: Rates{Worst: c.worst}, Waits: Waits{Stalls: c.stalls}}
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
	if err != nil || len(ranks) != 3 || ranks[2].Work.Steps != 7 {
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

// TestReport: the report in text has every table, also without a measurement.
func TestReport(t *testing.T) {
	r := &Report{
		Version: Version, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), StepSeconds: 0.02,
		Host:    Host{Name: "host", System: "linux/amd64", CPUs: 2, Usable: 1, CgroupCPU: 1.5, CgroupMemory: 1 << 30, Memory: 1 << 33},
		Data:    Data{Address: "s3://b/d", Sources: make([]SourceData, 2), Remote: true},
		Setting: Setting{Order{World: 64, GlobalBatch: 8, Shuffle: true}, Resources{Cache: "c", Requests: 7}},
	}
	for i := range 3 {
		k := Rank{Work{Rank: i, First: 1, FirstStalls: map[string]float64{"window": 1}, Elapsed: 2, Samples: 8, Sources: []SourceRank{{"a", 6, 1}, {"b", 2, 1}}}, Waits{Stalls: map[string]float64{"request": 0.5}}, Use{}}
		k.count(counted(0.5, 0.1))
		r.Ranks = append(r.Ranks, k)
	}
	r.Finish()
	text := func(r *Report) string {
		var text strings.Builder
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	out := text(r)
	for _, want := range []string{"a mix of 2 sources", "WAITED FOR", "keep more requests in flight", "75.0 %", "RANK", "raining waits ", "7 requests in flight"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(r.Verdict.Text, "--cache") {
		t.Errorf("with a cache: %s", r.Verdict.Text)
	}
	empty := &Report{Ranks: make([]Rank, 1)}
	empty.Finish()
	if out := text(empty); strings.Contains(out, "NaN") {
		t.Error(out)
	}
}

// TestReadJob: a process without a job is not one of bench.
func TestReadJob(t *testing.T) {
	if _, err := ReadJob(strings.NewReader(""), func() {}); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
