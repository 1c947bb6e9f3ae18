package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// steered is a mix of data sets, as a user asks for it.
type steered struct {
	spec Spec
	sets []source
}

func newSteered(t testing.TB, seed uint64, tail order.Tail, weights map[string]int64) *steered {
	t.Helper()
	m := &steered{spec: Spec{
		Name: "mix", Length: Length{Units: 500}, Said: map[string]bool{},
		Order: order.Choice{Seed: seed, Shuffle: true, Tail: tail, GlobalBatch: 24},
	}}
	for name, n := range map[string]int{"a": 90, "b": 150, "c": 60} {
		m.sets = append(m.sets, newSource(t, name, mem.New(), n))
	}
	slices.SortFunc(m.sets, func(a, b source) int { return strings.Compare(a.name, b.name) })
	for _, s := range m.sets {
		m.spec.Sources = append(m.spec.Sources, SourceSpec{
			Name: s.name, Set: s.Dataset, Share: big.NewRat(weights[s.name], 1), Fixed: Lanes{Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2},
		})
	}
	return m
}

// open opens the stream of a rank, from a checkpoint unless that is nil.
func (m *steered) open(t testing.TB, from *Checkpoint, o StreamOptions) *Stream {
	t.Helper()
	sources, err := OpenSources(t.Context(), m.spec, nil, from)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sources.Resolve(t.Context(), m.spec, from, Change{}, Planning{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := run.Stream(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		run.Close()
		sources.Close()
	})
	return s
}

// listed returns the samples of a batch and its place.
func listed(b *Batch) string {
	text := fmt.Sprintf("%d-%d:", b.Position, b.NextPosition)
	for i := range b.Len() {
		r := b.Ref(i)
		text += fmt.Sprintf(" %d/%d/%d/%v", r.Source, r.Epoch, r.Number, r.Padding)
	}
	return text
}

func nextOf(t testing.TB, s *Stream) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := s.Next(ctx)
	if errors.Is(err, io.EOF) {
		return "end"
	}
	if err != nil {
		t.Fatal(err)
	}
	return listed(b)
}

func saved1(t testing.TB, s *Stream) *Checkpoint {
	t.Helper()
	cp, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	return throughText(t, cp)
}

// TestSetWeights: random chains of batches, weights and starts on other ranks, half of them with
// costs. Each stream has the
// batches of a stream that begins where its weights were set and takes them from the checkpoint,
// and shares are kept to 4 units at every prefix of a segment.
func TestSetWeights(t *testing.T) {
	watch(t)
	chains := 30
	if testing.Short() {
		chains = 10
	}
	worst := 0.
	for seed := range uint64(chains) {
		random := rand.New(rand.NewPCG(seed, 5))
		m := newSteered(t, random.Uint64(), []order.Tail{order.TailWrap, order.TailShort, order.TailPad, order.TailDrop}[seed%4],
			map[string]int64{"a": 1 + random.Int64N(9), "b": 1 + random.Int64N(9), "c": random.Int64N(9)})
		m.spec.Cost = []string{"", "tokens + 1"}[seed/4%2]
		var from *Checkpoint
		for range 4 {
			o := StreamOptions{World: 1 + random.IntN(3), Tuning: Tuning{Depth: random.IntN(9), NoAutotune: true}}
			ranks := make([]*Stream, o.World)
			for r := range ranks {
				o.Rank = r
				ranks[r] = m.open(t, from, o)
			}
			for range 1 + random.IntN(5) {
				for range random.IntN(3) { // none, one, or two at the same place
					weights := map[string]float64{"a": random.Float64(), "b": float64(random.IntN(5)), "c": random.ExpFloat64()}
					if random.IntN(4) == 0 {
						delete(weights, "a")
					}
					for _, s := range ranks {
						if err := s.SetWeights(weights); err != nil {
							t.Fatal(err)
						}
					}
				}
				at := saved1(t, ranks[0])
				for _, s := range ranks[1:] {
					if got := saved1(t, s); checkpointText(t, got) != checkpointText(t, at) {
						t.Fatalf("chain %d: the ranks have\n%s\n%s", seed, checkpointText(t, at), checkpointText(t, got))
					}
				}
				n := random.IntN(12)
				for r, s := range ranks {
					o.Rank = r
					fresh := m.open(t, at, o) // a start that knows only the checkpoint
					for k := range n {
						if got, want := nextOf(t, s), nextOf(t, fresh); got != want {
							t.Fatalf("chain %d, rank %d, batch %d after %s:\n%s, a start there has\n%s", seed, r, k, checkpointText(t, at), got, want)
						}
					}
					if got, want := checkpointText(t, saved1(t, s)), checkpointText(t, saved1(t, fresh)); got != want {
						t.Fatalf("chain %d: after it\n%s, a start there has\n%s", seed, got, want)
					}
					fresh.Close()
				}
				worst = max(worst, shareError(t, ranks[0], at))
			}
			from = saved1(t, ranks[0])
			for _, s := range ranks {
				s.Close()
			}
		}
	}
	if t.Logf("worst share error %.2f", worst); worst >= 4 || worst == 0 {
		t.Errorf("a source is %.2f units from its share", worst)
	}
}

// shareError returns the largest distance of a source from its share over the prefixes of a segment
// that begins at a checkpoint.
func shareError(t testing.TB, s *Stream, at *Checkpoint) (worst float64) {
	t.Helper()
	plan := s.run.Load().Plan().(*mix.Plan)
	m := plan.Mix()
	if m.From != at.Mix.Position {
		return 0
	}
	before, err := plan.Counts(nil, m.From)
	if err != nil {
		t.Fatal(err)
	}
	total := 0.
	for _, w := range m.Segments[0].Weights {
		total += float64(w)
	}
	for n := uint64(1); n < 200; n++ {
		counts, err := plan.Counts(nil, m.From+n)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range m.Segments[0].Weights {
			worst = max(worst, math.Abs(float64(counts[i]-before[i])-float64(n)*float64(w)/total))
		}
	}
	return worst
}

func checkpointText(t testing.TB, c *Checkpoint) string {
	t.Helper()
	text, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSetWeightsRefused: a stream goes on as it was after weights that it refuses.
func TestSetWeightsRefused(t *testing.T) {
	watch(t)
	m := newSteered(t, 3, order.TailWrap, map[string]int64{"a": 1, "b": 2, "c": 0})
	s, same := m.open(t, nil, StreamOptions{}), m.open(t, nil, StreamOptions{})
	for _, c := range []struct {
		weights map[string]float64
		want    string
	}{
		{map[string]float64{"a": 1, "x": 1}, `no source "x": the mix has a, b, c`},
		{map[string]float64{"a": 1, "b": -1}, `source "b": weight -1: give a finite number`},
		{map[string]float64{"a": math.NaN()}, `source "a": weight NaN: give a finite number`},
		{map[string]float64{"a": math.Inf(1), "b": 1}, `source "a": weight +Inf`},
		{map[string]float64{"a": 0, "b": 0}, "all weights are 0"},
		{nil, "all weights are 0"},
		{map[string]float64{"a": 1, "b": 1e-12}, `source "b": its share is below 2^-32`},
	} {
		if err := s.SetWeights(c.weights); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.weights, err, c.want)
		}
		if got, want := nextOf(t, s), nextOf(t, same); got != want {
			t.Fatalf("after %v: %s, want %s", c.weights, got, want)
		}
	}
	if cp := saved1(t, s); cp.Mix.Steered {
		t.Error("refused weights are in the checkpoint")
	}
	if err := s.SetWeightsAt(*m.at(t, 24*100), map[string]float64{"a": 1}); !errors.Is(err, ErrOptions) {
		t.Errorf("a place that the stream has not come to: %v", err)
	}
	s.Close()
	if err := s.SetWeights(map[string]float64{"a": 1}); !errors.Is(err, errStreamClosed) {
		t.Errorf("after Close: %v", err)
	}
	one := newStreamed(t, mem.New(), mixed(20), testset.Options{BlockSize: 2000, ShardSize: 9000}).stream(t, StreamOptions{GlobalBatch: 4, Epochs: 1})
	if err := one.SetWeights(map[string]float64{"a": 1}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "one data set") {
		t.Errorf("one data set: %v", err)
	}
}

// at is the checkpoint of a position of the mix.
func (m *steered) at(t testing.TB, position uint64) *Checkpoint {
	t.Helper()
	s := m.open(t, nil, StreamOptions{})
	defer s.Close()
	cp, err := s.run.Load().Checkpoint(Place{Position: position}, 24, s.ledger.Mark())
	if err != nil {
		t.Fatal(err)
	}
	return &cp
}

// TestSetWeightsAtTheEnd: at the end of an epoch, and after the end of the stream, weights hold for
// what comes, and a source without units left gives nothing.
func TestSetWeightsAtTheEnd(t *testing.T) {
	watch(t)
	m := newSteered(t, 4, order.TailShort, map[string]int64{"a": 1, "b": 1, "c": 0})
	for i := range m.spec.Sources {
		m.spec.Sources[i].MaxEpochs = 1
	}
	s := m.open(t, nil, StreamOptions{})
	samples := 0
	for nextOf(t, s) != "end" {
		samples++
	}
	end := saved1(t, s)
	if end.Mix.Position != 240 || nextOf(t, s) != "end" {
		t.Fatalf("%d batches, the end is at %d", samples, end.Mix.Position)
	}
	if err := s.SetWeights(map[string]float64{"a": 1}); err != nil { // it is used up
		t.Fatal(err)
	}
	if got := nextOf(t, s); got != "end" {
		t.Errorf("weights for a source that is used up: %s", got)
	}
	if err := s.SetWeights(map[string]float64{"a": 1, "c": 1}); err != nil {
		t.Fatal(err)
	}
	at := saved1(t, s)
	fresh := m.open(t, at, StreamOptions{})
	for done := false; !done; {
		got, want := nextOf(t, s), nextOf(t, fresh)
		if got != want {
			t.Fatalf("%s, a start there has %s", got, want)
		}
		done = got == "end"
	}
	if cp := saved1(t, s); cp.Mix.Position != 300 || checkpointText(t, cp) != checkpointText(t, saved1(t, fresh)) {
		t.Errorf("the end is at %d: %s", cp.Mix.Position, checkpointText(t, cp))
	}

	// An end of the epoch, and before the first batch.
	m = newSteered(t, 4, order.TailShort, map[string]int64{"a": 1, "b": 1, "c": 0})
	m.spec.Order.GlobalBatch = 250
	s = m.open(t, nil, StreamOptions{})
	for place := range 4 {
		if err := s.SetWeights(map[string]float64{"c": 1, "b": float64(place)}); err != nil {
			t.Fatal(err)
		}
		at := saved1(t, s)
		if !at.Mix.Steered || at.Mix.From != uint64(place)*250 || at.Mix.Segments[0].At != at.Mix.From {
			t.Fatalf("the checkpoint is %s", checkpointText(t, at))
		}
		if got, want := nextOf(t, s), nextOf(t, m.open(t, at, StreamOptions{})); got != want || place == 0 && strings.Contains(got, " 1/") {
			t.Fatalf("%s, a start there has %s", got, want)
		}
	}
}

// TestSetWeightsAhead: segments of the mix that lie ahead are dropped, and the log tells. A resume
// takes the weights as saved, unless the mix may change.
func TestSetWeightsAhead(t *testing.T) {
	watch(t)
	m := newSteered(t, 5, order.TailWrap, map[string]int64{"a": 1, "b": 1, "c": 1})
	m.spec.Segments = []Segment{{At: 100, Shares: []*big.Rat{big.NewRat(1, 1), new(big.Rat), new(big.Rat)}}}
	var log lines
	s := m.open(t, nil, StreamOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	first := nextOf(t, s)
	if err := s.SetWeights(map[string]float64{"b": 0.25, "c": 0.75}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if got := nextOf(t, s); strings.Contains(got, " 0/") {
			t.Fatalf("source a has weight 0: %s", got)
		}
	}
	said := log.String()
	for _, want := range []string{"position=24", "weight.b=0.25", "weight.c=0.75", "is dropped", "at=100"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log has no %q: %s", want, said)
		}
	}
	at := saved1(t, s)
	if len(at.Mix.Segments) != 1 || at.Mix.Segments[0].At != 24 {
		t.Errorf("the checkpoint is %s", checkpointText(t, at))
	}
	sources, err := OpenSources(t.Context(), m.spec, nil, at)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sources.Resolve(t.Context(), m.spec, at, Change{Mix: true}, Planning{})
	if err != nil {
		t.Fatal(err)
	}
	cp, err := run.Checkpoint(run.Begin(), 24, s.ledger.Mark())
	if err != nil || cp.Mix.Steered || cp.Mix.Segments[0].Weights[0] == 0 {
		t.Errorf("a changed mix has the weights of its file: %+v, %v", cp.Mix, err)
	}
	kept, err := sources.Resolve(t.Context(), m.spec, at, Change{Mix: true, KeepWeights: true}, Planning{})
	if err != nil {
		t.Fatal(err)
	}
	if cp, err := kept.Checkpoint(kept.Begin(), 24, s.ledger.Mark()); err != nil || !cp.Mix.Steered {
		t.Errorf("a changed mix that keeps weights: %+v, %v", cp.Mix, err)
	}
	if again := m.open(t, nil, StreamOptions{}); nextOf(t, again) != first {
		t.Error("the first batch has changed")
	}
}

// TestSetWeightsAgain: each weights that follow at once, with batches in hand and readers ahead, in
// a window that is small. Nothing is lost, and nothing stays pinned.
func TestSetWeightsAgain(t *testing.T) {
	watch(t)
	m := newSteered(t, 6, order.TailWrap, map[string]int64{"a": 3, "b": 2, "c": 1})
	o := StreamOptions{Hold: 4, Tuning: Tuning{Memory: minMemory, Workers: 3}}
	s, alone := m.open(t, nil, o), m.open(t, nil, StreamOptions{})
	random := rand.New(rand.NewPCG(1, 2))
	var hand []*Batch
	for k := range 100 {
		if random.IntN(2) == 0 {
			weights := map[string]float64{"a": 1 + random.Float64(), "b": random.Float64(), "c": random.Float64()}
			if err := errors.Join(s.SetWeights(weights), alone.SetWeights(weights)); err != nil {
				t.Fatal(err)
			}
		}
		if len(hand) == 4 {
			hand[0].Release()
			hand = hand[1:]
		}
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hand = append(hand, b)
		if got, want := listed(b), nextOf(t, alone); got != want {
			t.Fatalf("batch %d: %s, want %s", k, got, want)
		}
		for i := range b.Samples {
			if string(b.Samples[i].Key) == "" {
				t.Fatal("no key")
			}
		}
	}
	for _, b := range hand {
		b.Release()
	}
}

// TestSetWeightsClose: another goroutine may close the stream at any moment, and batches in hand
// may be released after it.
func TestSetWeightsClose(t *testing.T) {
	watch(t)
	m := newSteered(t, 7, order.TailWrap, map[string]int64{"a": 3, "b": 2, "c": 1})
	for round := range 30 {
		s := m.open(t, nil, StreamOptions{Hold: 3})
		var hand *Batch
		timer := time.AfterFunc(time.Duration(round)*200*time.Microsecond, func() { s.Close() })
		for k := 0; ; k++ {
			err := s.SetWeights(map[string]float64{"a": float64(k%5 + 1), "b": 1})
			if err == nil && k%3 == 0 {
				var b *Batch
				if b, err = s.Next(t.Context()); err == nil {
					if hand != nil {
						hand.Release()
					}
					hand = b
				}
			}
			if err != nil {
				if !errors.Is(err, errStreamClosed) {
					t.Fatal(err)
				}
				break
			}
		}
		timer.Stop()
		if hand != nil {
			hand.Release()
		}
		s.Close()
	}
}
