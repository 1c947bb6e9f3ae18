package table

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		of   Sample
		want float64
	}{{Sample{3}, 3}, {Sample{4, 1}, 2.5}, {Sample{9, 1, 2}, 2}, {Sample{1, 8, 2, 4}, 3}} {
		if got := test.of.Median(); got != test.want {
			t.Errorf("median of %v is %v, want %v", test.of, got, test.want)
		}
	}
	if got := (Sample{6, 9}).Over(Sample{2, 3}).By(3); got[0] != 1 || got[1] != 1 {
		t.Errorf("6/2/3 and 9/3/3 are %v", got)
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0.12345: "0.123", 999: "999", 1000: "1,000", 1234: "1,230", 99_960: "100,000", 1_234_567: "1,230,000"} {
		if got := Figure(v); got != want {
			t.Errorf("%v is shown as %s, not %s", v, got, want)
		}
	}
}

// TestTable has a row of each kind, on both sides of its goal, as people and as programs read it.
func TestTable(t *testing.T) {
	var table Table
	table.AtLeast("a", "reached", Sample{1, 3, 2}, "x", 2, "d")
	table.AtLeast("a", "missed", One(1.9), "x", 2, "d")
	table.AtMost("a", "below", One(2), "", 2, "d")
	table.AtMost("a", "above", One(2.1), "", 2, "d")
	table.Info("b", "a | b", One(1234), "s", "")
	table.Rows = append(table.Rows, Row{Group: "b", Missing: "no\nserver"})

	var text, data strings.Builder
	if err := table.Print(&text); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{
		0: "| a | reached | 2 x | 1–3 | ≥ 2 | met | d | 1 May |\n", 4: "| b | a \\| b | 1,230 s |  |  |  |  | 1 May |\n", 5: "| b |  | nothing: no server |  |  |  |  | 1 May |\n",
	} {
		if got := table.Rows[i].Markdown("1 May"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if err := table.JSON(&data); err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := json.Unmarshal([]byte(data.String()), &rows); err != nil || len(rows) != len(table.Rows) {
		t.Fatalf("%d rows of %d come back: %v", len(rows), len(table.Rows), err)
	}
	lines := strings.Split(text.String(), "\n")[2:]
	for i, want := range []string{"met", "SHORT", "met", "SHORT", "", ""} {
		if got := rows[i].Mark(); got != want || !strings.Contains(lines[i], want) {
			t.Errorf("%s is marked %q, want %q, in %q", rows[i].Name, got, want, lines[i])
		}
	}
	if r := rows[0]; r.Value != 2 || r.Range() != "1–3" || r.Goal != "≥ 2" {
		t.Errorf("the first row is %+v", r)
	}
	if rows[1].Range() != "" {
		t.Errorf("a figure that was read once has the range %s", rows[1].Range())
	}
}
