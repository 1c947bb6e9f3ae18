package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	h, s := &r.Host, &r.Summary
	of := fmt.Sprintf("generation %d", r.Data.Generation)
	if n := len(r.Data.Sources); n > 0 {
		of = "a mix of " + plural(n, "source")
	}
	fmt.Fprintf(t, "data set\t%s, %s: %s samples, %s stored\n", r.Data.Address, of, humanize.Comma(int64(r.Data.Samples)), humanize.IBytes(r.Data.Bytes))
	fmt.Fprintf(t, "host\t%s\n", h.text())
	fmt.Fprintf(t, "asked\t%s\n\n", r.asked())
	fmt.Fprintf(t, "first batch\t%s\n", span(s.First))
	fmt.Fprintf(t, "wait a step\tp50 %s, p99 %s, longest %s, over %s\n", span(s.WaitP50), span(s.WaitP99), span(s.WaitMax), plural(s.Steps, "step"))
	if r.StepSeconds > 0 {
		fmt.Fprintf(t, "step\t%s asked, %s taken\n", span(r.StepSeconds), span(s.Step))
	}
	fmt.Fprintf(t, "waited\t%s of the time; rank %d, which waits most, %s\n", percent(s.Share), s.WorstRank, percent(s.Worst))
	fmt.Fprintf(t, "throughput\t%s samples/s, %s delivered, %s read\n", number(s.Samples), rate(s.Bytes), rate(s.Stored))
	fmt.Fprintf(t, "cost\t%s CPU a sample, %s of memory a rank (budget %s)\n", span(s.CPU), size(s.Resident), size(s.Memory))
	fmt.Fprintf(t, "tuning\t%s\n", r.tuning())
	if r.Price > 0 {
		fmt.Fprintf(t, "lost\t%.2f an hour, at %g for a rank\n", r.Lost, r.Price)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.stalls(t)
	if len(s.Sources) > 0 {
		fmt.Fprint(t, "\nSOURCE\tSHARE\tSAMPLES/S\tDELIVERED\n")
		for _, of := range s.Sources {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", of.Name, percent(of.Share), number(of.Samples), rate(of.Bytes))
		}
	}
	if len(r.Ranks) > 1 {
		fmt.Fprint(t, "\nRANK\tFIRST BATCH\tSTEPS\tWAIT P50\tP99\tLONGEST\tWAITED\tSAMPLES/S\n")
		for i := range r.Ranks {
			k := &r.Ranks[i]
			fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", k.Rank, span(k.First), k.Steps, span(k.WaitP50), span(k.WaitP99), span(k.WaitMax), percent(k.Share), number(float64(k.Samples)/k.Elapsed))
		}
	}
	if r.Sweep != nil {
		r.Sweep.text(t)
	}
	if r.Baseline != nil {
		r.compare(t, r.Baseline)
	}
	fmt.Fprintf(t, "\n%s.\n", upper(r.Verdict.Text))
	return t.Flush()
}

// stalls prints the table of causes, of the steps and of the first batch.
func (r *Report) stalls(w io.Writer) {
	fmt.Fprint(w, "\nWAITED FOR\tOF THE TIME\tOF THE WAIT\tFIRST BATCH\n")
	for _, row := range r.stallRows() {
		first := ""
		if row.Cause != ready {
			first = span(row.First)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row.Cause, percent(row.Time), percent(row.Wait), first)
	}
}

func (s *Sweep) text(w io.Writer) {
	fmt.Fprintf(w, "\nSETTING\tWITHOUT A STEP\t\tFIRST BATCH\t\n")
	fmt.Fprintf(w, "as asked\t%s samples/s\t\t\t\n", number(s.Base))
	for i := range s.Axes {
		a := &s.Axes[i]
		for j := range a.Points {
			p := &a.Points[j]
			note := ""
			if p.Failed {
				fmt.Fprintf(w, "%s %s\tfailed\t\t\t\n", a.Name, p.Value)
				continue
			}
			switch {
			case j == a.Enough && j+1 < len(a.Points):
				note = "← more gives little"
			case j == a.Enough:
				note = "← the most"
			}
			fmt.Fprintf(w, "%s %s\t%s samples/s\t%+.0f %%\t%s\t%s\n", a.Name, p.Value, number(p.Samples), 100*(p.Samples/max(s.Base, 1e-9)-1), span(p.First), note)
		}
	}
	fmt.Fprintf(w, "\nOne setting at a time, %s each; below %.0f %% a difference means nothing here.\n", span(s.Seconds), 100*s.Margin)
	if s.Need > 0 {
		fmt.Fprintf(w, "The step needs %s samples/s.\n", number(s.Need))
	}
	if len(s.Flags) == 0 {
		fmt.Fprint(w, "Recommended: the settings as asked.\n")
	} else {
		fmt.Fprintf(w, "Recommended: %s, which gave %s samples/s.\n", strings.Join(s.Flags, " "), number(s.Best))
	}
	for _, reason := range s.Reasons {
		fmt.Fprintf(w, "  %s\n", reason)
	}
	for i := range s.Axes {
		if a := &s.Axes[i]; a.Order && a.chosen() != nil {
			fmt.Fprintf(w, "%s changes the order: for new runs, not for those that resume from a checkpoint.\n", a.chosen().Flags)
		}
	}
}

// compare prints the differences to an earlier report.
func (r *Report) compare(w io.Writer, b *Report) {
	fmt.Fprintf(w, "\nAGAINST %s\tBEFORE\tNOW\t\n", b.Time.Format(time.DateTime))
	row := func(name string, before, now float64, text func(float64) string) {
		change := ""
		if before > 0 {
			change = fmt.Sprintf("×%.2f", now/before)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, text(before), text(now), change)
	}
	row("samples/s", b.Summary.Samples, r.Summary.Samples, number)
	row("waited", b.Summary.Worst, r.Summary.Worst, percent)
	row("wait p99", b.Summary.WaitP99, r.Summary.WaitP99, span)
	row("first batch", b.Summary.First, r.Summary.First, span)
	row("CPU a sample", b.Summary.CPU, r.Summary.CPU, span)
	row("memory a rank", float64(b.Summary.Resident), float64(r.Summary.Resident), func(v float64) string { return size(int64(v)) })
	for _, of := range r.Unlike(b) {
		fmt.Fprintf(w, "not the same: %s\n", of)
	}
}

// Unlike lists the conditions that differ between two reports.
func (r *Report) Unlike(b *Report) (all []string) {
	differ := func(what string, before, now any) {
		if before != now {
			all = append(all, fmt.Sprintf("%s (%v before, %v now)", what, before, now))
		}
	}
	differ("the content of the data set", b.Data.Digest, r.Data.Digest)
	differ("the store", b.Data.Address, r.Data.Address)
	differ("the host", b.Host.Name, r.Host.Name)
	differ("the CPUs", b.Host.Usable, r.Host.Usable)
	differ("the step", span(b.StepSeconds), span(r.StepSeconds))
	differ("the number of ranks", b.Summary.Ranks, r.Summary.Ranks)
	if b.Setting != r.Setting {
		all = append(all, "the settings")
	}
	return all
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
	s, t := &r.Summary, ""
	if s.Requests > 0 {
		t = "up to " + plural(s.Requests, "request") + " in flight, "
	}
	t += fmt.Sprintf("a depth of %s batches, ", humanize.Comma(int64(s.Depth)))
	if r.Setting.NoAutotune {
		return t + "fixed"
	}
	return t + "after " + plural(int(s.Decisions), "decision")
}

// asked describes the run.
func (r *Report) asked() string {
	t := plural(r.Summary.Ranks, "rank")
	if r.Setting.World != r.Summary.Ranks {
		t += fmt.Sprintf(" of %d", r.Setting.World)
	}
	t += fmt.Sprintf(", global batch %d", r.Setting.GlobalBatch)
	if r.StepSeconds > 0 {
		t += ", step " + span(r.StepSeconds)
	} else {
		t += ", no step"
	}
	if r.Setting.Shuffle {
		t += ", shuffled"
	}
	if r.Data.Remote && r.Setting.Requests > 0 {
		t += fmt.Sprintf(", %d requests in flight", r.Setting.Requests)
	}
	if r.Setting.Cache != "" {
		hits, misses := int64(0), int64(0)
		for i := range r.Ranks {
			hits, misses = hits+r.Ranks[i].CacheHits, misses+r.Ranks[i].CacheMisses
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
