package curate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
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

func chosenIn(v *viewfile.View) (numbers []int) {
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
		"lang = de":                     func(p *person) bool { return p.lang == "de" },
		"lang != de":                    func(p *person) bool { return p.lang != "de" && p.lang != "" },
		"lang > en":                     func(p *person) bool { return p.lang > "en" },
		"lang is null":                  func(p *person) bool { return p.lang == "" },
		"n is not null":                 func(p *person) bool { return p.n != nil },
		"n < -3":                        func(p *person) bool { return p.n != nil && *p.n < -3 },
		"n >= 0.5":                      func(p *person) bool { return p.n != nil && *p.n > 0 },
		"score between 10 and 20.5":     func(p *person) bool { return p.score != nil && *p.score >= 10 && *p.score <= 20.5 },
		"score != 5":                    func(p *person) bool { return p.score != nil && *p.score != 5 },
		"score > 5":                     func(p *person) bool { return p.score != nil && *p.score > 5 },
		"not score > 5":                 func(p *person) bool { return p.score != nil && !(*p.score > 5) }, // NaN too
		"score not between 5 and 50":    func(p *person) bool { return p.score != nil && !(*p.score >= 5 && *p.score <= 50) },
		"not (score < 0 or score >= 0)": func(p *person) bool { return p.score != nil && *p.score != *p.score },
		"score >= -inf":                 func(p *person) bool { return p.score != nil && *p.score == *p.score },
		"not n > 5":                     func(p *person) bool { return p.n != nil && *p.n <= 5 },
		"lang in (de, fr) and n > 50":   func(p *person) bool { return (p.lang == "de" || p.lang == "fr") && p.n != nil && *p.n > 50 },
		"not (lang = de or n is null)":  func(p *person) bool { return p.lang != "de" && p.lang != "" && p.n != nil },
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
		"n > 3 and score = x": `at character 19, "x": the attribute score holds number values: compare it with a number`,
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
		var want, got []samplekey.Entry
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

// TestSameHash: keys with equal hashes are distinguished by the keys themselves. Keys with one full
// hash are not known, so the joiner is given records with the same hash.
func TestSameHash(t *testing.T) {
	all := people(50)
	d := packed(t, all)
	m := &maker{d: d, spec: &Spec{AllowMissing: true, Memory: 1 << 20}, report: &Report{}}
	j := m.joiner("list")
	defer j.close()
	own := recordOf([]byte(all[4].key), 0)
	other := own
	other.Check++
	j.each = func(context.Context, func([]byte) error) error { return nil }
	var got []uint64
	j.found = func(number uint64, r record) error {
		if r.Check != own.Check {
			t.Errorf("sample %d is found by another key", number)
		}
		got = append(got, number)
		return nil
	}
	for _, r := range []record{other, own} {
		if err := j.Add(r); err != nil {
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
