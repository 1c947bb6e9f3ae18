package paced

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// group is the rows' in a table.
const group = "paced"

// What may grow between the second quarter of a run and its last: noise of a garbage collected
// heap, and connections of a store that come and go. A leak of one in a hundred batches is far
// more.
const (
	moreResident = 16 // MiB
	moreOf       = 1.1
)

// Add puts the figures of a result into a table; data describes the streamed data.
func (r *Result) Add(t *table.Table, data string) {
	const mib = 1 << 20
	data = fmt.Sprintf("%s, %.0f %% of the ceiling for %v", data, 100*need, r.Duration)
	t.AtMost(group, data+": wait share after the first batch", table.One(r.Share), "", 0.01,
		fmt.Sprintf("%d steps of %v, %.0f of %.0f samples/s, %.0f MB/s, through %.1f epochs; longest wait %v%s; memory budget %d MiB; first batch after %v",
			r.Steps, r.Step.Round(time.Microsecond), r.Rate, r.Ceiling, r.Bytes/1e6, r.Epochs,
			r.Worst.Round(time.Microsecond), r.causes(), r.Memory/mib, r.First.Round(time.Millisecond)))
	if r.Looks[0] == 0 || r.Looks[1] == 0 {
		return // the system reports nothing
	}
	t.AtMost(group, data+": resident memory, last quarter less second", table.One((r.Resident[1]-r.Resident[0])/mib),
		"MiB", moreResident,
		fmt.Sprintf("%.0f and %.0f MiB, means of %d and %d looks", r.Resident[0]/mib, r.Resident[1]/mib, r.Looks[0],
			r.Looks[1]))
	t.AtMost(group, data+": open files, last quarter / second",
		table.One(float64(r.Files[1])/float64(max(r.Files[0], 1))), "x", moreOf,
		fmt.Sprintf("%d and %d at most", r.Files[0], r.Files[1]))
}

// causes names what most of the wait was for.
func (r *Result) causes() string {
	type part struct {
		cause string
		share float64
	}
	all := []part{{"ready", r.Unexplained / max(r.Wait, 1e-9)}}
	for cause, s := range r.Stalls {
		all = append(all, part{cause, s / max(r.Wait, 1e-9)})
	}
	slices.SortFunc(all, func(a, b part) int {
		if a.share == b.share {
			return strings.Compare(a.cause, b.cause)
		}
		if a.share > b.share {
			return -1
		}
		return 1
	})
	text := ""
	for _, p := range all[:min(3, len(all))] {
		if p.share >= 0.05 {
			text += fmt.Sprintf(", %.0f %% %s", 100*p.share, p.cause)
		}
	}
	if text == "" {
		return ""
	}
	return " (of all waiting" + text + ")"
}
