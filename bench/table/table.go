// Package table collects the figures of a benchmark with their goals, prints them, and compares the
// figures of two programs.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is a line of a table, and its JSON.
type Row struct {
	Group string  `json:"group"`
	Name  string  `json:"name"`
	Value float64 `json:"value"` // the median
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Unit  string  `json:"unit"`
	// Goal is for people; Met reports whether it is met. Without a goal they are "" and nil.
	Goal   string `json:"goal"`
	Met    *bool  `json:"met,omitempty"`
	Detail string `json:"detail"`
	// Missing is why nothing was measured.
	Missing string `json:"missing,omitempty"`
	// Figures are others that were read at the same time.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Table is the rows of a run, in the order in which they were measured. Not for several goroutines.
type Table struct {
	Rows []Row
}

// AtLeast adds a row whose median has to reach a goal.
func (t *Table) AtLeast(group, name string, s Sample, unit string, goal float64, detail string) {
	met := s.Median() >= goal
	t.add(group, name, s, unit, fmt.Sprintf("≥ %g", goal), &met, detail)
}

// AtMost adds a row whose median must not be above a goal.
func (t *Table) AtMost(group, name string, s Sample, unit string, goal float64, detail string) {
	met := s.Median() <= goal
	t.add(group, name, s, unit, fmt.Sprintf("≤ %g", goal), &met, detail)
}

// Info adds a row without a goal.
func (t *Table) Info(group, name string, s Sample, unit, detail string) {
	t.add(group, name, s, unit, "", nil, detail)
}

func (t *Table) add(group, name string, s Sample, unit, goal string, met *bool, detail string) {
	t.Rows = append(t.Rows, Row{
		Group: group, Name: name, Value: s.Median(), Low: slices.Min(s), High: slices.Max(s), Unit: unit, Goal: goal,
		Met: met, Detail: detail,
	})
}

// LeftOut adds a row with the reason why a group was not measured, and prints the reason at once.
func (t *Table) LeftOut(group, why string) {
	fmt.Fprintf(os.Stderr, "bench: %s: nothing measured: %s\n", group, why)
	t.Rows = append(t.Rows, Row{Group: group, Missing: why})
}

// Measure runs a group and prints its name and how long it took. A group that fails is a row with
// the error, so that the figures of the other groups are kept.
func (t *Table) Measure(group string, run func() error) error {
	fmt.Fprintf(os.Stderr, "bench: %s …\n", group)
	began := time.Now()
	err := run()
	fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", group, time.Since(began).Seconds())
	if err == nil {
		return nil
	}
	t.LeftOut(group, "failed: "+err.Error())
	return fmt.Errorf("%s: %w", group, err)
}

// Print writes the table for people.
func (t *Table) Print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "\nGROUP\tWHAT\tMEASURED\tRANGE\tGOAL\t\tDETAIL")
	for _, r := range t.Rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Group, r.Name, r.Measured(), r.Range(), r.Goal, r.Mark(),
			r.Detail)
	}
	return out.Flush()
}

// JSON writes the rows for programs, an array of them.
func (t *Table) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(t.Rows)
}

// MarkdownHead is what stands above the rows of a page's table.
const MarkdownHead = "| group | what | measured | range | goal | | detail | on |\n|---|---|---:|---|---|---|---|---|\n"

// Markdown is the row for a page's table, with the day on which it was measured.
func (r Row) Markdown(day string) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s |\n",
		r.Group, Cell(r.Name), Cell(r.Measured()), r.Range(), r.Goal, r.Mark(), Cell(r.Detail), day)
}

// Cell makes text fit a table of Markdown.
func Cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// Measured is the figure with its unit, or why there is none.
func (r Row) Measured() string {
	if r.Missing != "" {
		return "nothing: " + r.Missing
	}
	return strings.TrimSpace(Figure(r.Value) + " " + r.Unit)
}

// Range is the lowest and the highest reading; "" when there is one.
func (r Row) Range() string {
	if r.Low == r.High {
		return ""
	}
	return Figure(r.Low) + "–" + Figure(r.High)
}

// Mark is "met" or "SHORT"; "" without a goal.
func (r Row) Mark() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	}
	return "SHORT"
}

// Figure is a number to three digits.
func Figure(v float64) string {
	if v >= 1000 {
		return Count(v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Count is a whole number with commas, to three digits.
func Count(v float64) string {
	scale := 1.0
	for v/scale >= 1000 {
		scale *= 10
	}
	digits := fmt.Sprintf("%.0f", scale*float64(int(v/scale+0.5)))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
