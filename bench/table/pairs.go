package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Pair compares one row of two programs, an old and a new one, that ran in turn.
type Pair struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	// Old and New are the medians of the rounds.
	Old float64 `json:"old"`
	New float64 `json:"new"`
	// Better is the median of the rounds' ratios, with their range: how many times as good the new
	// figure is as the old one of the same round. Above 1 the new program is faster, whether the
	// row counts up (a rate) or down (a time).
	Better float64 `json:"better"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// Rounds is how many rounds have the row in both programs.
	Rounds int `json:"rounds"`
	// Slower reports that the new program was slower in every round: the whole range is below 1.
	Slower bool `json:"slower"`
	// Missing is why the row is not compared; "" where it is.
	Missing string `json:"missing,omitempty"`
}

// Round is what the two programs measured in one round.
type Round struct{ Old, New []Row }

// Pairs matches the rows of all rounds by group and name. Rows that only one program has, or whose
// direction is unknown, are Pairs with a reason in Missing.
func Pairs(rounds []Round) []Pair {
	type key struct{ group, name string }
	type readings struct {
		row             Row
		old, new, ratio Sample
	}
	var order []key
	found := map[key]*readings{}
	at := func(r Row) *readings {
		k := key{r.Group, r.Name}
		if found[k] == nil {
			order, found[k] = append(order, k), &readings{row: r}
		}
		if got := found[k]; got.row.Goal == "" {
			got.row.Goal = r.Goal // the old program may have had none
		}
		return found[k]
	}
	for _, round := range rounds {
		old := map[key]Row{}
		for _, r := range round.New {
			at(r) // the new program's rows first, in its order
		}
		for _, r := range round.Old {
			at(r)
			old[key{r.Group, r.Name}] = r
			if r.Missing == "" {
				at(r).old = append(at(r).old, r.Value)
			}
		}
		for _, r := range round.New {
			if r.Missing != "" {
				continue
			}
			got := at(r)
			got.new = append(got.new, r.Value)
			if o, ok := old[key{r.Group, r.Name}]; ok && o.Missing == "" && o.Unit == r.Unit && o.Value > 0 &&
				r.Value > 0 {
				got.ratio = append(got.ratio, r.Value/o.Value)
			}
		}
	}
	pairs := make([]Pair, 0, len(order))
	for _, k := range order {
		got := found[k]
		p := Pair{Group: k.group, Name: k.name, Unit: got.row.Unit, Rounds: len(got.ratio)}
		if len(got.old) > 0 {
			p.Old = got.old.Median()
		}
		if len(got.new) > 0 {
			p.New = got.new.Median()
		}
		up, known := got.row.up()
		switch {
		case got.row.Missing != "":
			p.Missing = got.row.Missing
		case len(got.new) == 0:
			p.Missing = "only in the old program"
		case len(got.old) == 0:
			p.Missing = "only in the new program"
		case len(got.ratio) == 0:
			p.Missing = "no round has a figure of both in one unit"
		case !known:
			p.Missing = "neither more nor less is better"
		default:
			if !up {
				for i := range got.ratio {
					got.ratio[i] = 1 / got.ratio[i]
				}
			}
			p.Better, p.Low, p.High = got.ratio.Median(), slices.Min(got.ratio), slices.Max(got.ratio)
			p.Slower = p.High < 1
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// up reports whether a larger value is better. The goal decides; without one, the unit does: ratios
// and rates count up, times and sizes count down.
func (r Row) up() (up, known bool) {
	switch {
	case strings.HasPrefix(r.Goal, "≥"):
		return true, true
	case strings.HasPrefix(r.Goal, "≤"):
		return false, true
	case r.Goal != "":
		return false, false
	case r.Unit == "x", strings.HasSuffix(r.Unit, "/s"):
		return true, true
	}
	return false, r.Unit != "" && slices.Contains([]string{"s", "ms", "µs", "ns", "ns/row", "B/row"}, r.Unit)
}

// PrintPairs writes the comparison for people.
func PrintPairs(w io.Writer, pairs []Pair) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "\nGROUP\tWHAT\tOLD\tNEW\tNEW IS BETTER\tRANGE\tROUNDS\t")
	for _, p := range pairs {
		if p.Missing != "" {
			fmt.Fprintf(out, "%s\t%s\t\t\t\t\t\tnot compared: %s\n", p.Group, p.Name, p.Missing)
			continue
		}
		mark := ""
		if p.Slower {
			mark = "SLOWER"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.3fx\t%.3f–%.3f\t%d\t%s\n",
			p.Group, p.Name, Figure(p.Old), strings.TrimSpace(Figure(p.New)+" "+p.Unit), p.Better, p.Low, p.High,
			p.Rounds, mark)
	}
	return out.Flush()
}
