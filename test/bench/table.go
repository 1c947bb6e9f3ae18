package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// row is a line of the table.
type row struct {
	Group  string  `json:"group"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Unit   string  `json:"unit"`
	Goal   string  `json:"goal"`
	Met    *bool   `json:"met,omitempty"`
	Detail string  `json:"detail"`
}

func (b *bench) print() error {
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nGROUP\tWHAT\tMEASURED\tRANGE\tGOAL\t\tDETAIL")
	for _, r := range b.rows {
		mark := ""
		if r.Met != nil {
			mark = "met"
			if !*r.Met {
				mark = "SHORT"
			}
		}
		span := ""
		if r.Low != r.High {
			span = fmt.Sprintf("%.3g–%.3g", r.Low, r.High)
		}
		fmt.Fprintf(t, "%s\t%s\t%.3g %s\t%s\t%s\t%s\t%s\n", r.Group, r.Name, r.Value, r.Unit, span, r.Goal, mark, r.Detail)
	}
	return t.Flush()
}

// atLeast and atMost add a row with a goal, info one without.
func (b *bench) atLeast(group, name string, s sample, unit string, goal float64, detail string) {
	met := s.median() >= goal
	b.add(group, name, s, unit, fmt.Sprintf("≥ %g", goal), &met, detail)
}

func (b *bench) atMost(group, name string, s sample, unit string, goal float64, detail string) {
	met := s.median() <= goal
	b.add(group, name, s, unit, fmt.Sprintf("≤ %g", goal), &met, detail)
}

func (b *bench) info(group, name string, s sample, unit, detail string) {
	b.add(group, name, s, unit, "", nil, detail)
}

func (b *bench) add(group, name string, s sample, unit, goal string, met *bool, detail string) {
	b.rows = append(b.rows, row{group, name, s.median(), slices.Min(s), slices.Max(s), unit, goal, met, detail})
}

// sample is repeated readings of one figure.
type sample []float64

// median is the mean of the middle two of an even number: the upper one alone would flatter.
func (s sample) median() float64 {
	c := slices.Sorted(slices.Values(s))
	return (c[(len(c)-1)/2] + c[len(c)/2]) / 2
}

// over divides pair by pair.
func (s sample) over(base sample) sample {
	out := make(sample, len(s))
	for i := range s {
		out[i] = s[i] / base[i]
	}
	return out
}

// by divides by one number.
func (s sample) by(n float64) sample {
	out := make(sample, len(s))
	for i := range s {
		out[i] = s[i] / n
	}
	return out
}

// rates runs each of these in turn, with who goes first changing, and returns the bytes a second of each. All run once
// before, uncounted.
func (b *bench) rates(bytes int64, run ...func() error) ([]sample, error) {
	out := make([]sample, len(run))
	for i := range b.times + 1 {
		for k := range run {
			j := (k + i) % len(run)
			runtime.GC()
			begin := time.Now()
			if err := run[j](); err != nil {
				return nil, err
			}
			if i > 0 {
				out[j] = append(out[j], float64(bytes)/time.Since(begin).Seconds())
			}
		}
	}
	return out, nil
}

func mbs(perSecond float64) string { return fmt.Sprintf("%.0f MB/s", perSecond/1e6) }
