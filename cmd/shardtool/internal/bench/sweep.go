package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
)

// Point is one value of an axis, with its measurement without a step.
type Point struct {
	// Flags are the flags that set it.
	Flags   string  `json:"flags"`
	Value   string  `json:"value"`
	Samples float64 `json:"samples_per_s"`
	Bytes   float64 `json:"bytes_per_s"`
	First   float64 `json:"first_batch_s"`
	Memory  int64   `json:"memory_budget"`
	// Base marks the value that the sweep started from. Aside points cannot be recommended. Failed
	// points could not be measured.
	Base   bool `json:"base,omitempty"`
	Aside  bool `json:"aside,omitempty"`
	Failed bool `json:"failed,omitempty"`

	apply func(*Setting)
}

// Axis is the values of one setting, cheapest first.
type Axis struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	// Enough is the index of the point after which returns diminish: later points cost more and gain
	// less than the margin; -1 if there is none. Order reports that the setting changes the order of
	// samples, so that it is only for new runs.
	Enough int    `json:"enough"`
	Order  bool   `json:"changes_order,omitempty"`
	Reason string `json:"reason"`

	kept bool // keep the base value in any case
}

// Sweep is a search, one setting at a time, for the ceiling: the samples per second of a consumer
// that needs no time.
type Sweep struct {
	// Seconds is the time that each setting was measured.
	Seconds float64 `json:"seconds"`
	// Need is the rate that the step needs, in samples per second over the measured ranks; 0 without a
	// step.
	Need float64 `json:"need_samples_per_s,omitempty"`
	// Base is the ceiling of the base setting: the mean of all its measurements, first, last and on
	// the axes. Margin is the difference that counts: the spread of these measurements, at least 5 %.
	Base   float64 `json:"base_samples_per_s"`
	Margin float64 `json:"margin"`
	Axes   []Axis  `json:"axes"`
	// Flags are the recommended flags, empty for the base setting. Best is their measurement.
	Flags   []string `json:"recommended"`
	Reasons []string `json:"reasons"`
	Best    float64  `json:"recommended_samples_per_s"`

	lean bool // only points that gain more than the margin are left
}

// Sweeper runs a Sweep.
type Sweeper struct {
	// Run measures a setting without a step.
	Run func(ctx context.Context, s Setting) (Summary, error)
	// Base is the setting to start from. Memory is its budget, CPUs how many a rank may use, Requests
	// how many requests the store sends concurrently.
	Base     Setting
	Mix      bool // of several data sets
	Memory   int64
	CPUs     int
	Requests int
	Need     float64
	Seconds  float64
	// Cache is a folder to try, empty for none.
	Cache string
	// Say is called before each measurement.
	Say func(n, of int, what string)
}

// axes returns the settings to try.
func (s *Sweeper) axes() []Axis {
	var all []Axis
	workers := Axis{Name: "workers"}
	for n := 1; n <= 2*s.CPUs; n *= 2 {
		workers.add(fmt.Sprint(n), fmt.Sprintf("--workers %d", n), n == s.Base.Workers || (s.Base.Workers == 0 && n == s.CPUs), func(t *Setting) { t.Workers = n })
	}
	all = append(all, workers)
	if s.Requests > 0 {
		requests := Axis{Name: "requests in flight"}
		for n := max(s.Requests/16, 1); n <= s.Requests; n *= 2 {
			base := n == s.Base.Requests || s.Base.NoAutotune && s.Base.Requests == 0 && n == s.Requests
			requests.add(fmt.Sprint(n), fmt.Sprintf("--requests %d", n), base, func(t *Setting) { t.Requests = n })
		}
		if s.Base.Requests == 0 && !s.Base.NoAutotune { // which may exceed all of these
			requests.add("as tuned", "", true, func(*Setting) {})
		}
		all = append(all, requests)
	}
	memory := Axis{Name: "memory"}
	for _, quarter := range []int64{1, 2, 4, 8} {
		n := max(s.Memory*quarter/4, 1<<20)
		n = (n + 1<<20 - 1) &^ (1<<20 - 1)
		memory.add(humanize.IBytes(uint64(n)), fmt.Sprintf("--memory %dMiB", n>>20), quarter == 4, func(t *Setting) { t.Memory = n })
	}
	all = append(all, memory)
	if s.Base.Shuffle && !s.Base.WholeShards && !s.Mix { // a mix file has it for each source
		runs := Axis{Name: "run length", Order: true}
		for _, n := range []uint32{1, 2, 4, 8, 16} {
			runs.add(plural(int(n), "block"), fmt.Sprintf("--run-blocks %d", n), n == s.Base.RunBlocks, func(t *Setting) { t.RunBlocks = n })
		}
		all = append(all, runs)
	}
	if s.Cache != "" {
		cache := Axis{Name: "cache"}
		cache.add("none", "", s.Base.Cache == "", func(t *Setting) { t.Cache = "" })
		cache.add("as it is", "", false, func(t *Setting) { t.Cache = s.Cache })
		cache.Points[1].Aside = true
		cache.add("the second time", "--cache "+s.Cache, s.Base.Cache != "", func(t *Setting) { t.Cache = s.Cache })
		all = append(all, cache)
	}
	return all
}

func (a *Axis) add(value, flags string, base bool, apply func(*Setting)) {
	a.Points = append(a.Points, Point{Value: value, Flags: flags, Base: base, apply: apply})
}

// Sweep measures all axes, one after the other, and then their recommendations together.
func (s *Sweeper) Sweep(ctx context.Context) (*Sweep, error) {
	axes := s.axes()
	total, n := 4, 0 // the base setting twice, and recommendations at most twice
	for i := range axes {
		total += len(axes[i].Points)
	}
	run := func(t Setting, what string) (Summary, error) {
		n++
		s.Say(n, total, what)
		return s.Run(ctx, t)
	}
	base, err := run(s.Base, "as asked")
	if err != nil {
		return nil, err
	}
	for i := range axes {
		for j := range axes[i].Points {
			p := &axes[i].Points[j]
			t := s.Base
			p.apply(&t)
			of, err := run(t, axes[i].Name+" "+p.Value)
			if failed, ok := errors.AsType[*RankError](err); ok && ctx.Err() == nil {
				s.Say(n, total, failed.Error())
				p.Failed, p.Aside = true, true
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", axes[i].Name, p.Value, err)
			}
			p.Samples, p.Bytes, p.First, p.Memory = of.Samples, of.Bytes, of.First, of.Memory
		}
	}
	again, err := run(s.Base, "as asked, again")
	if err != nil {
		return nil, err
	}
	out := &Sweep{Seconds: s.Seconds, Need: s.Need, Axes: axes}
	out.settle(base.Samples, again.Samples)
	for len(out.Flags) > 0 {
		t := s.Base
		for i := range axes {
			if p := axes[i].chosen(); p != nil {
				p.apply(&t)
			}
		}
		best, err := run(t, "as recommended")
		if err != nil {
			return nil, err
		}
		if out.confirm(best.Samples) {
			break
		}
	}
	return out, nil
}

// settle computes the base and the margin, and the recommendation of each axis.
func (s *Sweep) settle(first, last float64) {
	same := []float64{first, last}
	for i := range s.Axes {
		for j := range s.Axes[i].Points {
			if p := &s.Axes[i].Points[j]; p.Base && !p.Failed {
				same = append(same, p.Samples)
			}
		}
	}
	for _, v := range same {
		s.Base += v / float64(len(same))
	}
	s.Best, s.Margin = s.Base, 0.05
	if s.Base > 0 {
		s.Margin = min(max(s.Margin, (slices.Max(same)-slices.Min(same))/s.Base), 0.9)
	}
	for i := range s.Axes {
		a := &s.Axes[i]
		a.settle(s.Base, s.Need, s.Margin)
		s.Reasons = append(s.Reasons, a.Name+": "+a.Reason)
	}
	s.choose()
}

func (s *Sweep) choose() {
	s.Flags = []string{}
	for i := range s.Axes {
		if p := s.Axes[i].chosen(); p != nil {
			s.Flags = append(s.Flags, p.Flags)
		}
	}
}

// confirm reports whether the recommendations together reach the expected rate. If not, it drops
// those that were only cheaper, so that the rest is measured once more; after that it drops all.
func (s *Sweep) confirm(got float64) bool {
	if got >= (1-s.Margin)*s.Base || (s.Need > 0 && got >= headroom*s.Need) {
		s.Best = got
		return true
	}
	flags := len(s.Flags)
	for i := range s.Axes {
		if a := &s.Axes[i]; a.chosen() != nil && (s.lean || a.chosen().Samples <= (1+s.Margin)*s.Base) {
			a.kept = true
		}
	}
	s.choose()
	why := "nothing is recommended"
	if s.lean = len(s.Flags) > 0 && len(s.Flags) < flags; s.lean {
		why = "what was only cheaper is left as it was"
	} else {
		s.Flags = []string{}
	}
	s.Reasons = append(s.Reasons, fmt.Sprintf("together they gave %s samples/s, less than the %s without: %s", number(got), number(s.Base), why))
	return false
}

// headroom is the desired ratio of the ceiling to what the step needs.
const headroom = 1.1

// settle finds the cheapest sufficient point, and gives the reason.
func (a *Axis) settle(base, need, margin float64) {
	best, baseAt := 0.0, -1
	for i := range a.Points {
		if p := &a.Points[i]; !p.Aside {
			best = max(best, p.Samples)
			if p.Base {
				baseAt = i
			}
		}
	}
	want, goal := (1-margin)*best, "the best"
	if enough := max(headroom, 1+margin) * need; need > 0 && best >= enough {
		want, goal = min(want, enough), "what the step needs"
	}
	if a.Enough = slices.IndexFunc(a.Points, func(p Point) bool { return !p.Aside && p.Samples >= want }); a.Enough < 0 {
		a.Reason = "nothing could be measured"
		return
	}
	p := &a.Points[a.Enough]
	switch {
	case a.Order && p.Samples <= (1+margin)*base: // the gain does not justify another order
		if baseAt >= 0 {
			a.Enough = baseAt
		} else {
			a.Enough = -1
		}
		a.Reason = "no other gives more than the order's own choice"
	case a.Enough == len(a.Points)-1:
		a.Reason = fmt.Sprintf("%s gives %s samples/s, and less gives less", p.Value, number(p.Samples))
	default:
		a.Reason = fmt.Sprintf("%s gives %s samples/s, %s; more gives at most %s", p.Value, number(p.Samples), goal, number(a.above()))
	}
}

// above returns the best rate of the points after Enough.
func (a *Axis) above() (best float64) {
	for i := a.Enough + 1; i < len(a.Points); i++ {
		if !a.Points[i].Aside {
			best = max(best, a.Points[i].Samples)
		}
	}
	return best
}

// chosen returns the point to recommend, nil for the base value.
func (a *Axis) chosen() *Point {
	if a.kept || a.Enough < 0 || a.Points[a.Enough].Base || a.Points[a.Enough].Flags == "" {
		return nil
	}
	return &a.Points[a.Enough]
}
