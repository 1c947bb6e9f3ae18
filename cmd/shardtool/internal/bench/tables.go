package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// table is a part of a report: facts without a Head, or figures.
type table struct {
	Head []string
	Rows [][]string
}

func (t *table) add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i, t := range r.tables() {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if t.Head != nil {
			t.Rows = append([][]string{t.Head}, t.Rows...)
		}
		for _, row := range t.Rows {
			fmt.Fprintln(out, strings.Join(row, "\t"))
		}
	}
	fmt.Fprintf(out, "\n%s.\n", upper(r.Verdict.Text))
	return out.Flush()
}

// tables returns the parts of the report, in their order.
func (r *Report) tables() []table {
	all := []table{r.conditions(), r.results(), r.stalls()}
	if sources := r.Summary.Rates.Sources; len(sources) > 0 {
		t := table{Head: []string{"SOURCE", "SHARE", "SAMPLES/S", "DELIVERED"}}
		for _, of := range sources {
			t.add(of.Name, percent(of.Share), number(of.Samples), rate(of.Bytes))
		}
		all = append(all, t)
	}
	if len(r.Ranks) > 1 {
		t := table{Head: []string{"RANK", "FIRST BATCH", "STEPS", "WAIT P50", "P99", "LONGEST", "WAITED", "SAMPLES/S"}}
		for i := range r.Ranks {
			did, w := &r.Ranks[i].Work, &r.Ranks[i].Waits
			t.add(fmt.Sprint(did.Rank), span(did.First), fmt.Sprint(did.Steps), span(w.P50), span(w.P99), span(w.Max),
				percent(w.Share), number(float64(did.Samples)/max(did.Elapsed, 1e-9)))
		}
		all = append(all, t)
	}
	return all
}

// conditions are the data set, the host and the run.
func (r *Report) conditions() table {
	t := table{}
	of := fmt.Sprintf("generation %d", r.Data.Generation)
	if n := len(r.Data.Sources); n > 0 {
		of = "a mix of " + plural(n, "source")
	}
	t.add("data set", fmt.Sprintf("%s, %s: %s samples, %s stored", r.Data.Address, of,
		humanize.Comma(int64(r.Data.Samples)), humanize.IBytes(r.Data.Bytes)))
	t.add("host", r.Host.text())
	t.add("asked", r.asked())
	return t
}

// results are the figures of all ranks together.
func (r *Report) results() table {
	t, s, w, use := table{}, &r.Summary.Rates, &r.Summary.Waits, &r.Summary.Use
	t.add("first batch", span(s.First))
	t.add("wait a step", fmt.Sprintf("p50 %s, p99 %s, longest %s, over %s", span(w.P50), span(w.P99), span(w.Max),
		plural(s.Steps, "step")))
	if r.StepSeconds > 0 {
		t.add("step", fmt.Sprintf("%s asked, %s taken", span(r.StepSeconds), span(w.Step)))
	}
	t.add("waited", fmt.Sprintf("%s of the time; rank %d, which waits most, %s", percent(w.Share), s.WorstRank,
		percent(s.Worst)))
	t.add("throughput", fmt.Sprintf("%s samples/s, %s delivered, %s read", number(s.Samples), rate(s.Bytes),
		rate(s.Stored)))
	t.add("cost", fmt.Sprintf("%s CPU a sample, %s of memory a rank (budget %s)", span(s.CPU), size(use.Resident),
		size(use.Memory)))
	t.add("tuning", r.tuning())
	if b := r.Balance; b != nil {
		t.add("balance", fmt.Sprintf("the costliest rank of a step has %.3f times the mean, %.3f without --cost; "+
			"the bound is %.3f", b.With.Mean, b.Without.Mean, b.Bound.Mean))
	}
	return t
}

// ready is the row of waits for batches that were ready.
const ready = "(it was ready)"

// stalls is the table of causes: shares of the time and of the wait, and the mean wait for the
// first batch.
func (r *Report) stalls() table {
	t := table{Head: []string{"WAITED FOR", "OF THE TIME", "OF THE WAIT", "FIRST BATCH"}}
	elapsed, total := 0.0, r.Summary.Waits.Ready
	first := map[string]float64{}
	for i := range r.Ranks {
		did := &r.Ranks[i].Work
		elapsed += did.Elapsed
		for cause, d := range did.FirstStalls {
			first[cause] += d / float64(len(r.Ranks))
		}
	}
	for _, d := range r.Summary.Waits.Stalls {
		total += d
	}
	row := func(cause string, d float64, first string) {
		t.add(cause, percent(d/max(elapsed, 1e-9)), percent(d/max(total, 1e-9)), first)
	}
	for _, cause := range Causes() {
		if d := r.Summary.Waits.Stalls[cause]; d > 0 || first[cause] > 0 {
			row(cause, d, span(first[cause]))
		}
	}
	row(ready, r.Summary.Waits.Ready, "")
	return t
}

func (h *Host) text() string {
	t := fmt.Sprintf("%s, %s, %s", h.Name, h.System, plural(h.CPUs, "CPU"))
	if h.CPU != "" {
		t += " " + h.CPU
	}
	if h.Usable != h.CPUs {
		t += fmt.Sprintf(", %d usable", h.Usable)
	}
	if h.CgroupCPU > 0 {
		t += fmt.Sprintf(", cgroup %.3g CPUs", h.CgroupCPU)
	}
	if h.Memory > 0 {
		t += ", " + size(h.Memory) + " of memory"
	}
	if h.CgroupMemory > 0 {
		t += ", cgroup " + size(h.CgroupMemory)
	}
	return t + fmt.Sprintf(", load %.2f before", h.Load)
}

// tuning describes the result of autotuning.
func (r *Report) tuning() string {
	s, t := &r.Summary.Use, ""
	if s.Requests > 0 {
		t = "up to " + plural(s.Requests, "request") + " in flight, "
	}
	t += fmt.Sprintf("a depth of %s batches, ", humanize.Comma(int64(s.Depth)))
	if r.Setting.Resources.NoAutotune {
		return t + "fixed"
	}
	return t + "after " + plural(int(s.Decisions), "decision")
}

// asked describes the run.
func (r *Report) asked() string {
	t := plural(r.Summary.Rates.Ranks, "rank")
	if r.Setting.Order.World != r.Summary.Rates.Ranks {
		t += fmt.Sprintf(" of %d", r.Setting.Order.World)
	}
	t += fmt.Sprintf(", global batch %d", r.Setting.Order.GlobalBatch)
	if r.StepSeconds > 0 {
		t += ", step " + span(r.StepSeconds)
	} else {
		t += ", no step"
	}
	if r.Setting.Order.Shuffle {
		t += ", shuffled"
	}
	if r.Data.Remote && r.Setting.Resources.Requests > 0 {
		t += fmt.Sprintf(", %d requests in flight", r.Setting.Resources.Requests)
	}
	if r.Setting.Resources.Cache != "" {
		hits, misses := int64(0), int64(0)
		for i := range r.Ranks {
			hits, misses = hits+r.Ranks[i].Work.CacheHits, misses+r.Ranks[i].Work.CacheMisses
		}
		t += fmt.Sprintf(", cache (%s in it before; %d reads found, %d not)", size(r.Data.CacheUsed), hits, misses)
	}
	return t
}

// span formats seconds for people.
func span(s float64) string {
	d := time.Duration(s * 1e9)
	for unit := time.Nanosecond; unit < time.Second; unit *= 1000 {
		if d < 1000*unit {
			return d.Round(max(unit/10, 1)).String()
		}
	}
	return d.Round(10 * time.Millisecond).String()
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
func rate(v float64) string    { return fmt.Sprintf("%s MB/s", number(v/1e6)) }
func size(n int64) string      { return humanize.IBytes(uint64(max(n, 0))) }

// number formats a value with at least three digits.
func number(v float64) string {
	switch {
	case v >= 1000:
		return humanize.Comma(int64(v + 0.5))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(int64(n)) + " " + what
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
