package table

import (
	"strings"
	"testing"
)

// TestPairs compares rounds of every kind of row: those that count up and down, those that only
// one program has, and those that no round measured.
func TestPairs(t *testing.T) {
	round := func(factors ...float64) []Row {
		f := factors[0]
		return []Row{
			{Group: "a", Name: "rate", Value: 2 * f, Unit: "x", Goal: "≥ 1"},
			{Group: "a", Name: "time", Value: 3 * f, Unit: "ms", Goal: "≤ 1"},
			{Group: "a", Name: "no goal, time", Value: 4 * f, Unit: "µs"},
			{Group: "a", Name: "near one", Value: f, Unit: "x", Goal: "1 ± 0.1"},
		}
	}
	only := func(rows []Row, name string) []Row {
		return append(rows, Row{Group: "b", Name: name, Value: 1, Unit: "x"})
	}
	rounds := []Round{
		{Old: only(round(1), "was"), New: only(round(0.5), "is")},
		{Old: only(round(1), "was"), New: only(round(0.9), "is")},
		{Old: only(round(2), "was"), New: append(only(round(1.6), "is"), Row{Group: "c", Missing: "no torch"})},
	}
	byName := map[string]Pair{}
	for _, p := range Pairs(rounds) {
		byName[p.Group+" "+p.Name] = p
	}
	for name, want := range map[string]Pair{
		"a rate":          {Old: 2, New: 1.8, Better: 0.8, Low: 0.5, High: 0.9, Rounds: 3, Slower: true},
		"a time":          {Old: 3, New: 2.7, Better: 1.25, Low: 1 / 0.9, High: 2, Rounds: 3},
		"a no goal, time": {Old: 4, New: 3.6, Better: 1.25, Low: 1 / 0.9, High: 2, Rounds: 3},
		"a near one":      {Old: 1, New: 0.9, Rounds: 3, Missing: "neither more nor less is better"},
		"b was":           {Old: 1, Missing: "only in the old program"},
		"b is":            {New: 1, Missing: "only in the new program"},
		"c ":              {Missing: "no torch"},
	} {
		got, ok := byName[name]
		close := func(x, y float64) bool { return x-y < 1e-9 && y-x < 1e-9 }
		if !ok || !close(got.Old, want.Old) || !close(got.New, want.New) || !close(got.Better, want.Better) || !close(got.Low, want.Low) || !close(got.High, want.High) ||
			got.Rounds != want.Rounds || got.Slower != want.Slower || got.Missing != want.Missing {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if len(byName) != 7 {
		t.Errorf("%d pairs: %v", len(byName), byName)
	}

	// One round that is not slower clears a row: marked rows are slower in every round.
	rounds[1].New[0].Value = 2.1
	pairs := Pairs(rounds)
	if p := pairs[0]; p.Name != "rate" || p.Slower || p.High < 1 {
		t.Errorf("a row that was faster once: %+v", p)
	}
	var text strings.Builder
	rounds[1].New[0].Value = 1.8
	if err := PrintPairs(&text, Pairs(rounds)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rate", "1.8 x", "0.800x", "0.500–0.900", "SLOWER", "not compared: only in the old program", "not compared: no torch"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Count(text.String(), "SLOWER") != 1 {
		t.Errorf("more than one row is marked:\n%s", text.String())
	}
}
