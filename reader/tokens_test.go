package reader_test

import (
	"errors"
	"fmt"
	"github.com/shardtool/shardtool/internal/order/mix"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
)

// lengths opens a data set of n samples of these lengths; nil: without the attribute.
func lengths(t *testing.T, n int, length func(key string) int64, edit func(m *metadata.Manifest)) *reader.Dataset {
	t.Helper()
	var samples []testset.Sample
	for i := range n {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%03d", i), Fields: []testset.Field{{Name: "x", Data: []byte{byte(i)}}}})
	}
	store := mem.New()
	o := testset.Options{BlockSize: 4000, ShardSize: 12_000, Length: length, Edit: edit, Label: func(string) string { return "a" }}
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openSources opens a mix file over open data sets.
func openSources(t *testing.T, text string, sets ...*reader.Dataset) (*reader.Sources, error) {
	t.Helper()
	spec := parse(t, text)
	for i := range spec.Sources {
		spec.Sources[i].Set = sets[i]
	}
	return reader.OpenSources(t.Context(), *spec, nil, nil)
}

// TestDescribe takes the sums of the attribute that is counted; only sources with a share need it.
func TestDescribe(t *testing.T) {
	sets := []*reader.Dataset{
		lengths(t, 40, func(string) int64 { return 100 }, nil),
		lengths(t, 10, func(key string) int64 { return int64(key[2] - '0') }, nil),
		lengths(t, 30, nil, nil),
	}
	const text = "sources: {a: {data: x, weight: 1/2}, b: {data: y, weight: 1/2}, c: {data: z, weight: 0}}\ncount: length\n"
	x, err := openSources(t, text, sets...)
	if err != nil || !slices.Equal(x.Tokens(), []uint64{4000, 45, 0}) {
		t.Fatalf("%v", err)
	}
	run, err := x.Resolve(t.Context(), reader.Spec{}, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	// Half of the tokens each: samples as 1/100 to 1/4.5.
	if m := run.Plan().(*mix.Plan).Mix(); !slices.Equal(m.Segments[0].Weights, []uint64{184950745, 4110016551, 0}) {
		t.Errorf("weights %d", m.Segments[0].Weights)
	}
	for _, more := range []string{"segments: [{at: 5, weights: {c: 1}}]\n", "temperature: 1\n"} {
		text := text + more
		if strings.HasPrefix(more, "temperature") {
			text = strings.NewReplacer(", weight: 1/2", "", ", weight: 0", "").Replace(text)
		}
		_, err := openSources(t, text, sets...)
		var count *reader.CountError
		if !errors.As(err, &count) || !strings.HasPrefix(err.Error(), `mix.yaml:1: sources.c: count: length: `) || !strings.Contains(err.Error(), `no such integer attribute: "length", there are []`) {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// TestTokensOfViews counts the samples of a view alone, as often as an epoch draws them on average.
func TestTokensOfViews(t *testing.T) {
	length := func(key string) int64 { n, _ := strconv.Atoi(key); return int64(n) }
	for name, c := range map[string]struct {
		view   viewfile.View
		tokens uint64
	}{
		"a subset":      {viewfile.View{Chosen: []byte{0b1000_0001, 0, 0, 0, 0b1000_0000}}, 0 + 7 + 39},
		"weights":       {viewfile.View{Weights: append([]uint32{5, 0, 1}, make([]uint32, 37)...), Draws: 600}, 600 * (0*5 + 2*1) / 6},
		"classes":       {viewfile.View{Weights: append([]uint32{1, 0, 1}, append(make([]uint32, 36), 2)...), Draws: 600, Classes: []uint64{1, 1}}, 300*(0+2)/2 + 300*39},
		"large weights": {viewfile.View{Weights: slices.Repeat([]uint32{1 << 31}, 40), Draws: 40}, 39 * 40 / 2},
	} {
		d := lengths(t, 40, length, nil)
		c.view.Digest, c.view.Samples = d.Digest(), d.NumSamples()
		if err := d.UseView(&c.view); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n, err := d.Tokens(t.Context(), "length"); err != nil || n != c.tokens {
			t.Errorf("%s: %d tokens, %v, want %d", name, n, err, c.tokens)
		}
	}
	d := lengths(t, 40, func(key string) int64 { return length(key) - 2 }, nil)
	if err := d.UseView(&viewfile.View{Digest: d.Digest(), Samples: 40, Chosen: []byte{0b111, 0, 0, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Tokens(t.Context(), "length"); err == nil || !strings.Contains(err.Error(), "is below 0 in 2 samples") {
		t.Errorf("values below 0: %v", err)
	}
}

// TestTokensRefused: an attribute that does not count all samples is refused.
func TestTokensRefused(t *testing.T) {
	one := func(string) int64 { return 1 }
	for want, c := range map[string]struct {
		d         *reader.Dataset
		attribute string
	}{
		`no such integer attribute: "tokens", there are ["length"]`: {lengths(t, 5, one, nil), ""},
		`no such integer attribute: "label" is a label`:             {lengths(t, 5, one, nil), "label"},
		`the attribute "length" is below 0 in 2 samples`:            {lengths(t, 5, func(key string) int64 { return int64(key[2]) - '2' }, nil), "length"},
		"2 of 5 samples have no attribute \"length\"":               {lengths(t, 5, one, total(1, 2, 3)), "length"},
		"adds up to 18446744073709551616, which is 2^64 or more:":   {lengths(t, 5, one, total(math.MaxInt64, math.MaxInt64, 2, 0, 0)), "length"},
	} {
		_, err := c.d.Tokens(t.Context(), c.attribute)
		var count *reader.CountError
		if !errors.As(err, &count) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pack the data set again") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// total gives a data set the total of these values.
func total(values ...int64) func(*metadata.Manifest) {
	return func(m *metadata.Manifest) {
		sum := metadata.AttrTotal{Name: "length"}
		for _, v := range values {
			sum.Add(v)
		}
		m.AttrTotals = []metadata.AttrTotal{sum}
	}
}
