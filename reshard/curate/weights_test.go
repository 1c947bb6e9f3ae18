package curate

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWeights(t *testing.T) {
	all := people(500)
	for i := range all { // weights are numbers
		if v := float64(i) / 4; all[i].score == nil || *all[i].score != *all[i].score {
			all[i].score = &v
		}
		if i%9 == 0 {
			all[i].score = nil
		}
	}
	d := packed(t, all)
	if _, _, err := Make(t.Context(), d, Spec{Weight: "score"}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "56 samples have no weight") || !strings.Contains(err.Error(), all[9].key) {
		t.Errorf("samples without a weight: %v", err)
	}
	half := 0.5
	v, r, err := Make(t.Context(), d, Spec{Weight: "score", Default: &half, Where: []string{"lang is not null"}, Draws: 77})
	if err != nil {
		t.Fatal(err)
	}
	largest := 0.
	for i := range all {
		if all[i].lang != "" && all[i].score != nil {
			largest = max(largest, *all[i].score)
		}
	}
	_, exponent := math.Frexp(largest)
	chosen := uint64(0)
	for i := range all {
		want := 0.
		switch {
		case all[i].lang == "":
		case all[i].score == nil:
			want = half
		default:
			want = *all[i].score
		}
		if want > 0 {
			chosen++
		}
		if v.Weights[i] != uint32(math.Ldexp(want, 32-exponent)) {
			t.Fatalf("sample %d of weight %v has u %d", i, want, v.Weights[i])
		}
	}
	if v.Draws != 77 || r.Chosen != chosen || r.Samples != 77 {
		t.Errorf("%d draws, %+v, want %d chosen", v.Draws, r, chosen)
	}
	if _, _, err = Make(t.Context(), d, Spec{Weight: "n", Where: []string{"n >= 0"}}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("negative weights: %v", err)
	}
	for text, spec := range map[string]Spec{
		"is a label":                  {Weight: "lang"},
		"did you mean score":          {Weight: "scor"},
		"more than one":               {Weight: "score", Balance: "lang"},
		"goes with balance":           {Weight: "score", Temperature: [2]int{1, 2}},
		"0 ≤ p ≤ q":                   {Balance: "lang", Temperature: [2]int{3, 2}},
		"go with weights":             {Draws: 5},
		"default weight of -1":        {Weight: "score", Default: new(float64)},
		"there is no attribute \"x\"": {Balance: "x"},
	} {
		if spec.Default != nil {
			*spec.Default = -1
		}
		if _, _, err := Make(t.Context(), d, spec); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestQuantize: integers stay, others keep their proportions, and none above 0 is lost.
func TestQuantize(t *testing.T) {
	for _, c := range []struct {
		w      []float64
		want   []uint32
		raised uint64
	}{
		{[]float64{3, 0, 7}, []uint32{3, 0, 7}, 0},
		{[]float64{1<<32 - 1, 1}, []uint32{1<<32 - 1, 1}, 0},
		{[]float64{1 << 32, 1 << 31}, []uint32{1 << 31, 1 << 30}, 0},
		{[]float64{0.5, 0.25, 0}, []uint32{1 << 31, 1 << 30, 0}, 0},
		{[]float64{1e300, 1e200, 5e-324}, []uint32{0xbf21e440, 1, 1}, 2},
		{[]float64{5e-324, 1e-323}, []uint32{1 << 30, 1 << 31}, 0},
	} {
		m := &maker{report: &Report{}}
		got := m.quantize(c.w)
		if c.w[0] == 1e300 {
			c.want[0] = got[0]
		}
		if !slices.Equal(got, c.want) || m.report.Raised != c.raised {
			t.Errorf("%v are %d with %d raised, want %d", c.w, got, m.report.Raised, c.want)
		}
	}
}

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		c    uint64
		p, q int
		want uint32
	}{
		{1, 0, 1, 1 << 31}, {2, 0, 1, 1 << 30}, {3, 0, 1, 715827882}, {1000, 0, 1, 2147483}, {7, 1, 1, 1 << 31},
		{4, 1, 2, 1 << 30}, {1000, 1, 2, 67909395}, {1000, 3, 10, 17058068}, {1 << 40, 0, 1, 1},
	} {
		if got := balanced(c.c, c.p, c.q); got < c.want-1 || got > c.want+1 || c.q == 1 && got != c.want {
			t.Errorf("%d at %d/%d: %d, want %d", c.c, c.p, c.q, got, c.want)
		} else if over := math.Pow(float64(got+1), float64(c.q)) * math.Pow(float64(c.c), float64(c.q-c.p)); over < math.Pow(2, float64(31*c.q))*(1-1e-9) {
			t.Errorf("%d at %d/%d: %d is not the largest", c.c, c.p, c.q, got)
		}
	}
	all := people(2000)
	d := packed(t, all)
	v, r, err := Make(t.Context(), d, Spec{Balance: "lang", Where: []string{"n is not null"}})
	if err != nil {
		t.Fatal(err)
	}
	counts, sums := map[string]uint64{}, map[string]uint64{}
	without := uint64(0)
	for i := range all {
		switch {
		case all[i].n == nil:
		case all[i].lang == "":
			without++
		default:
			counts[all[i].lang]++
			sums[all[i].lang] += uint64(v.Weights[i])
		}
		if (all[i].n == nil || all[i].lang == "") != (v.Weights[i] == 0) {
			t.Fatalf("sample %d has weight %d", i, v.Weights[i])
		}
	}
	for lang, n := range counts {
		if sums[lang] < 1<<31-n || sums[lang] > 1<<31 {
			t.Errorf("%s: %d samples weigh %d together", lang, n, sums[lang])
		}
	}
	if r.WithoutValue != without || len(counts) != 4 {
		t.Errorf("%+v, want %d without", r, without)
	}
}

// TestScores joins files by key.
func TestScores(t *testing.T) {
	all := people(300)
	d := packed(t, all)
	dir := t.TempDir()
	file := func(name string, rows ...string) *Scores {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return &Scores{Name: name}
	}
	csv, jsonl := []string{"value,key"}, []string(nil)
	for i := len(all) - 1; i >= 0; i-- {
		csv = append(csv, fmt.Sprintf("%d.5,%s", i, all[i].key))
		jsonl = append(jsonl, fmt.Sprintf(`{"key":%q,"x":[1],"value":%d.5}`, all[i].key, i))
	}
	for _, s := range []*Scores{file("s.csv", csv...), file("s.jsonl", jsonl...)} {
		v, _, err := Make(t.Context(), d, Spec{Scores: s})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if want := uint32(math.Ldexp(float64(i)+0.5, 32-9)); v.Weights[i] != want {
				t.Fatalf("%s: sample %d has %d, want %d", s.Name, i, v.Weights[i], want)
			}
		}
	}
	for text, s := range map[string]*Scores{
		fmt.Sprintf("the key %q is there twice", all[3].key): file("twice.csv", "key,value", all[3].key+",1", all[4].key+",2", all[3].key+",1"),
		"is not a number":   file("word.csv", "key,value", all[3].key+",high"),
		"not a number":      file("nan.csv", "key,value", all[3].key+",NaN"),
		"not negative":      file("negative.jsonl", fmt.Sprintf(`{"key":%q,"value":-1}`, all[3].key)),
		"need the columns":  file("columns.csv", "id,score", "a,1"),
		"keys of":           file("missing.csv", "key,value", "none,1"),
		"have no weight":    file("few.csv", "key,value", all[3].key+",1", all[4].key+","),
		"all weights are 0": file("zero.csv", append([]string{"key,value"}, each(all, ",0")...)...),
	} {
		_, _, err := Make(t.Context(), d, Spec{Scores: s})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	zero := 0.
	v, r, err := Make(t.Context(), d, Spec{Scores: file("few.csv", "key,value", all[3].key+",1", "gone,4"), Default: &zero, AllowMissing: true})
	if err != nil || v.Weights[3] != 1 || v.Draws != 1 || r.MissingKeys.Count != 1 || r.MissingKeys.Some[0] != "gone" {
		t.Errorf("with a default and missing keys: %v, %+v", err, r)
	}
}

func each(all []person, more string) (rows []string) {
	for _, p := range all {
		rows = append(rows, p.key+more)
	}
	return rows
}
