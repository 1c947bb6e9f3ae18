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

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
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

// TestBalance: the values of an attribute are the classes of a view, and those that are expected to
// have a whole number of draws have it in every epoch, with every seed.
func TestBalance(t *testing.T) {
	all := people(2000)
	d := packed(t, all)
	table, err := d.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts, without := map[string]uint64{}, uint64(0)
	for i := range all {
		switch {
		case all[i].n == nil:
		case all[i].lang == "":
			without++
		default:
			counts[all[i].lang]++
		}
	}
	for _, c := range []struct {
		temperature [2]int
		draws       uint64
	}{{draws: 280}, {draws: 4000}, {draws: 3}, {}, {[2]int{1, 1}, 0}, {[2]int{1, 1}, 77}, {[2]int{1, 2}, 500}, {[2]int{3, 10}, 0}} {
		v, r, err := Make(t.Context(), d, Spec{Balance: "lang", Where: []string{"n is not null"}, Temperature: c.temperature, Draws: c.draws})
		if err != nil {
			t.Fatal(err)
		}
		if r.WithoutValue != without || len(counts) != 4 || len(v.Classes) != 4 || v.Kind() != "classes" {
			t.Fatalf("%+v of %d classes, want %d without", r, len(v.Classes), without)
		}
		total, share := 0., func(n uint64) float64 {
			return math.Pow(float64(n), float64(c.temperature[0])/float64(max(c.temperature[1], 1)))
		}
		for _, n := range counts {
			total += share(n)
		}
		for range 2 { // the second time chosen from the view, and stored between
			made, err := viewstore.Order(v, table.Samples)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(7) {
				drawn, chosen, first := map[string]uint64{}, made.Chosen(seed, uint32(3*seed)), uint64(0)
				for b, n := range table.Samples {
					for _, i := range chosen.Append(nil, uint32(b), first) {
						drawn[all[first+uint64(i)].lang]++
					}
					first += uint64(n)
				}
				for lang, n := range counts {
					want := float64(v.Draws) * share(n) / total
					if math.Abs(float64(drawn[lang])-want) > 1-1e-6 {
						t.Errorf("%+v: %s with %d samples has %d of %d draws, want %v", c, lang, n, drawn[lang], v.Draws, want)
					}
				}
			}
			file, err := v.Encode()
			if err == nil {
				v, err = viewfile.Decode(file, d.Digest(), d.NumSamples())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBalanceChosen: a view with classes that is chosen from keeps the weights of its classes, and
// has none without samples.
func TestBalanceChosen(t *testing.T) {
	all := people(600)
	d := packed(t, all)
	v, _, err := Make(t.Context(), d, Spec{Balance: "lang", Draws: 120})
	if err == nil {
		err = d.UseView(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := v.ID()
	few, r, err := Make(t.Context(), d, Spec{Where: []string{"lang in (" + all[1].lang + ", " + other(all, all[1].lang) + ") and n is not null"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(few.Classes) != 2 || few.Draws != 120 || r.Samples != 120 || v.ID() != before || len(v.Classes) < 3 {
		t.Errorf("%d classes, %d draws, %+v; the view chosen from has %d", len(few.Classes), few.Draws, r, len(v.Classes))
	}
	drawn := map[string]int{}
	table, err := d.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made, err := viewstore.Order(few, table.Samples)
	if err != nil {
		t.Fatal(err)
	}
	first, chosen := uint64(0), made.Chosen(1, 2)
	for b, n := range table.Samples {
		for _, i := range chosen.Append(nil, uint32(b), first) {
			drawn[all[first+uint64(i)].lang]++
		}
		first += uint64(n)
	}
	if len(drawn) != 2 || drawn[all[1].lang] != 60 {
		t.Errorf("drawn %v, want 60 of two", drawn)
	}
	if _, err := few.Encode(); err != nil {
		t.Error(err)
	}
	// Carried over to the same data set, it is the same view.
	if same, _, err := Carry(t.Context(), d, d, Spec{}); err != nil || same.ID() != v.ID() {
		t.Errorf("carried over: %v, or another view", err)
	}
}

func other(all []person, lang string) string {
	for _, p := range all {
		if p.lang != "" && p.lang != lang {
			return p.lang
		}
	}
	return ""
}

// TestProportions: rational proportions are exact, others fine and in proportion.
func TestProportions(t *testing.T) {
	for _, c := range []struct {
		counts []uint64
		p, q   int
		want   []uint64 // nil: irrational
	}{
		{[]uint64{5, 1, 99}, 0, 1, []uint64{1, 1, 1}},
		{[]uint64{5, 15, 100}, 1, 1, []uint64{1, 3, 20}},
		{[]uint64{200, 50, 450}, 1, 2, []uint64{2, 1, 3}},
		{[]uint64{200, 50, 450}, 2, 4, []uint64{2, 1, 3}},
		{[]uint64{16, 2, 54}, 2, 3, []uint64{4, 1, 9}},
		{[]uint64{7}, 5, 16, []uint64{1}},
		{[]uint64{4, 9, 10}, 1, 2, nil},
		{[]uint64{1 << 40, 1<<40 + 1, 3, 1}, 15, 16, nil},
		{nil, 1, 2, []uint64{}},
	} {
		got := proportions(c.counts, c.p, c.q)
		if c.want != nil {
			if !slices.Equal(got, c.want) {
				t.Errorf("%d at %d/%d: %d, want %d", c.counts, c.p, c.q, got, c.want)
			}
			continue
		}
		total := uint64(0)
		for k, g := range got {
			total += g
			exact := math.Pow(float64(c.counts[k])/float64(c.counts[0]), float64(c.p)/float64(c.q))
			if ratio := float64(g) / float64(got[0]); math.Abs(ratio/exact-1) > 1e-6 {
				t.Errorf("%d at %d/%d: %d", c.counts, c.p, c.q, got)
			}
		}
		if total < 1<<60 || total >= 1<<62 {
			t.Errorf("%d at %d/%d: %d add up to %d", c.counts, c.p, c.q, got, total)
		}
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
