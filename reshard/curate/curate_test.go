package curate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person is a sample with attributes, which may be absent.
type person struct {
	key   string
	lang  string // "" is absent
	n     *int64
	score *float64
}

func people(n int) (all []person) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		p := person{key: fmt.Sprintf("p/%05d", (i*7919)%n)}
		if i%11 != 0 {
			p.lang = []string{"de", "en", "fr", "sv"}[min(rnd.IntN(8), 3)]
		}
		if v := rnd.Int64N(200) - 100; i%5 != 0 {
			p.n = &v
		}
		if v := float64(rnd.IntN(1000)) / 10; i%7 != 0 {
			if i%13 == 0 {
				v = math.NaN()
			}
			p.score = &v
		}
		all = append(all, p)
	}
	return all
}

func packed(t testing.TB, all []person) *reader.Dataset {
	t.Helper()
	ctx, st := context.Background(), mem.New()
	w, err := writer.New(ctx, st, writer.Options{Name: "p", BlockSize: 8 << 10, ShardSize: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		s := writer.Sample{Key: p.key, Fields: []writer.Field{{Name: "txt", Data: []byte(p.key)}}}
		if p.lang != "" {
			s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "lang", Kind: format.AttrLabel}, Label: p.lang})
		}
		if p.n != nil {
			s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: *p.n})
		}
		if p.score != nil {
			s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "score", Kind: format.AttrNumber}, Number: *p.score})
		}
		if err := w.Write(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	d, err := reader.Open(ctx, st, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func lists(keys []string) *KeyList {
	return &KeyList{Name: "keys.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(strings.Join(keys, "\n"))), nil }}
}

func chosenIn(v *format.View) (numbers []int) {
	for i := range int(v.Samples) {
		if v.Chosen[i/8]>>(i%8)&1 != 0 {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func TestWhere(t *testing.T) {
	all := people(3000)
	d := packed(t, all)
	for text, holds := range map[string]func(p *person) bool{
		"lang = de":                    func(p *person) bool { return p.lang == "de" },
		"lang != de":                   func(p *person) bool { return p.lang != "de" && p.lang != "" },
		"lang > en":                    func(p *person) bool { return p.lang > "en" },
		"lang is null":                 func(p *person) bool { return p.lang == "" },
		"n is not null":                func(p *person) bool { return p.n != nil },
		"n < -3":                       func(p *person) bool { return p.n != nil && *p.n < -3 },
		"n >= 0.5":                     func(p *person) bool { return p.n != nil && *p.n > 0 },
		"score between 10 and 20.5":    func(p *person) bool { return p.score != nil && *p.score >= 10 && *p.score <= 20.5 },
		"score != 5":                   func(p *person) bool { return p.score != nil && *p.score != 5 },
		"lang in (de, fr) and n > 50":  func(p *person) bool { return (p.lang == "de" || p.lang == "fr") && p.n != nil && *p.n > 50 },
		"not (lang = de or n is null)": func(p *person) bool { return p.lang != "de" && p.lang != "" && p.n != nil },
		"lang not in (de,en) or score==7": func(p *person) bool {
			return p.lang == "fr" || p.lang == "sv" || p.score != nil && *p.score == 7
		},
	} {
		v, r, err := Make(t.Context(), d, Spec{Where: []string{text}})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var want []int
		for i := range all {
			if holds(&all[i]) {
				want = append(want, i)
			}
		}
		if got := chosenIn(v); !slices.Equal(got, want) || r.Chosen != uint64(len(want)) || r.Samples != r.Chosen {
			t.Errorf("%s: %d samples, want %d; %+v", text, len(got), len(want), r)
		}
	}
	for text, want := range map[string]string{
		"scor > 3":            `at character 1, "scor > 3": there is no attribute "scor": did you mean score? There are: lang, n, score`,
		"lang = dee":          `at character 8, "dee": no sample has this lang: did you mean "de"?`,
		"lang in (de, svv)":   `no sample has this lang: did you mean "sv"?`,
		"n > 3 and score = x": `at character 19, "x": the attribute score is a number: compare it with a number`,
		"n > 3 and":           "at character 10, the end",
	} {
		if _, _, err := Make(t.Context(), d, Spec{Where: []string{text}}); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, _, err := Make(t.Context(), d, Spec{Where: []string{"n > 1000"}}); !errors.Is(err, ErrEmpty) {
		t.Errorf("a view of nothing: %v", err)
	}
	if v, _, err := Make(t.Context(), d, Spec{}); err != nil || count(v.Chosen) != 3000 {
		t.Errorf("an empty spec: %v", err)
	}
}

// TestKeys: lists with and without a keys table, in memory and through a temporary file.
func TestKeys(t *testing.T) {
	all := people(4001)
	d := packed(t, all)
	var list, rest []string
	for i := range all {
		if i%3 == 0 {
			list = append(list, all[i].key)
		} else {
			rest = append(rest, all[i].key)
		}
	}
	list = append(list, list[:50]...) // twice
	list[7] += "\r"
	for _, memory := range []int64{0, 1} {
		v, _, err := Make(t.Context(), d, Spec{Keys: lists(list), WithoutKeys: lists(rest), Memory: memory, Temp: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if (v.Chosen[i/8]>>(i%8)&1 != 0) != (i%3 == 0) {
				t.Fatalf("sample %d", i)
			}
		}
	}
	var missing []string
	for i := range 12 {
		missing = append(missing, fmt.Sprintf("no/%d", i))
	}
	spec := Spec{Keys: lists(append(missing, list...))}
	_, r, err := Make(t.Context(), d, spec)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "12 keys of keys.txt are not in") || !strings.Contains(err.Error(), `"no/0" "no/1"`) && !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("missing keys: %v", err)
	}
	if r.MissingKeys.Count != 12 || len(r.MissingKeys.Some) != 10 {
		t.Errorf("%+v", r.MissingKeys)
	}
	spec.AllowMissing = true
	if v, _, err := Make(t.Context(), d, spec); err != nil || count(v.Chosen) != uint64((len(all)+2)/3) {
		t.Errorf("missing keys allowed: %v", err)
	}
	if _, _, err := Make(t.Context(), d, Spec{Keys: lists([]string{"ok", strings.Repeat("x", 1<<20)})}); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a long line: %v", err)
	}
	if _, _, err := Make(t.Context(), d, Spec{Keys: KeyFile("/no/such")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestIndexed: without a keys table the samples come from the indexes, in the same order.
func TestIndexed(t *testing.T) {
	d := packed(t, people(3000))
	for _, memory := range []int64{1, 1 << 20} {
		m := &maker{d: d, spec: &Spec{Memory: memory, Temp: t.TempDir()}, report: &Report{}}
		var want, got []format.KeyEntry
		for entries, err := range d.KeyHashes(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, entries...)
		}
		indexed, done, err := m.indexed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for entries, err := range indexed {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, entries...)
		}
		done()
		if !slices.Equal(got, want) || len(want) != 3000 {
			t.Errorf("memory %d: %d samples in the indexes, %d in the keys table, or another order", memory, len(got), len(want))
		}
	}
}

// TestSorter: records come back in order, through memory and through the file.
func TestSorter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 1023, 1024, 1025, 50_000} {
		s := newSorter(t.TempDir(), 1)
		var want []record
		for range n {
			r := record{rnd.Uint64N(50), rnd.Uint64N(50), rnd.Uint64N(50)}
			want = append(want, r)
			if err := s.add(r); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, record.compare)
		var got []record
		for r, err := range s.all() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if !slices.Equal(got, want) || (n == 50_000) != (s.file != nil) {
			t.Errorf("%d records: %d came, file %v", n, len(got), s.file)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSameHash: keys whose hashes are equal are told apart by the keys themselves. The hash is cut
// short by looking for keys that agree in it; here the joiner is given records of one hash.
func TestSameHash(t *testing.T) {
	all := people(50)
	d := packed(t, all)
	m := &maker{d: d, spec: &Spec{AllowMissing: true, Memory: 1 << 20}, report: &Report{}}
	j := m.joiner("list")
	defer j.close()
	own := recordOf([]byte(all[4].key), 0)
	other := own
	other.check++
	j.each = func(context.Context, func([]byte) error) error { return nil }
	var got []uint64
	j.found = func(number uint64, r record) error {
		if r.check != own.check {
			t.Errorf("sample %d is found by another key", number)
		}
		got = append(got, number)
		return nil
	}
	for _, r := range []record{other, own} {
		if err := j.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []uint64{4}) || m.report.MissingKeys.Count != 1 {
		t.Errorf("found %d, %+v", got, m.report.MissingKeys)
	}
}

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
		if got := Balanced(c.c, c.p, c.q); got < c.want-1 || got > c.want+1 || c.q == 1 && got != c.want {
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

// TestCarry makes views of another generation anew.
func TestCarry(t *testing.T) {
	all := people(900)
	old := packed(t, all)
	moved := slices.Clone(all[100:])
	slices.Reverse(moved)
	for i := range 40 {
		moved = append(moved, person{key: fmt.Sprintf("new/%d", i), lang: "de"})
	}
	d := packed(t, moved)
	for _, s := range []Spec{{Where: []string{"lang = de"}}, {Balance: "lang"}} {
		v, _, err := Make(t.Context(), old, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := old.UseView(v); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Carry(t.Context(), old, d, Spec{}); !errors.Is(err, ErrMissing) {
			t.Errorf("keys that are gone: %v", err)
		}
		now, r, err := Carry(t.Context(), old, d, Spec{AllowMissing: true})
		if err != nil {
			t.Fatal(err)
		}
		was := map[string]uint32{}
		for i, p := range all {
			if v.Subset() {
				was[p.key] = uint32(v.Chosen[i/8] >> (i % 8) & 1)
			} else {
				was[p.key] = v.Weights[i]
			}
		}
		for i, p := range moved {
			is := uint32(0)
			if now.Subset() {
				is = uint32(now.Chosen[i/8] >> (i % 8) & 1)
			} else {
				is = now.Weights[i]
			}
			if is != was[p.key] {
				t.Fatalf("%s has %d, had %d", p.key, is, was[p.key])
			}
		}
		if now.Draws != v.Draws || r.MissingKeys.Count == 0 {
			t.Errorf("%d draws, had %d; %+v", now.Draws, v.Draws, r)
		}
	}
}
