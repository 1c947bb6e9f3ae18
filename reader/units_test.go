package reader

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func newDocuments(t *testing.T, n int) (*streamed, map[string]int) {
	t.Helper()
	samples, lengths := testset.Documents(n)
	return newStreamed(t, mem.New(), samples, testset.Options{
		BlockSize: 6000, ShardSize: 60_000, Integer: func(key string) (int64, bool) { return int64(lengths[key]), true },
	}), lengths
}

func packedOptions(size uint32) StreamOptions {
	return StreamOptions{Shuffle: true, GlobalBatch: 6, Epochs: 1, Units: units.Params{Kind: units.Pack, Size: size, Long: units.LongSplit, Window: 32, By: "tokens"}, Order: OrderOptions{Lanes: 4, Delay: 3}}
}

// unitsOf are the samples and offsets of a batch, unit by unit.
func unitsOf(b *Batch) (out []string) {
	for i := range b.Samples {
		cut := b.Cut(i)
		if int(cut.Unit) == len(out) {
			out = append(out, "")
		}
		out[cut.Unit] += fmt.Sprintf(" %d+%d", b.Samples[i].Number, cut.Offset)
	}
	return out
}

// Chains of starts at any unit, with other ranks, batches and costs, deliver the units of one
// process. A kept plan changes nothing, and a damaged one neither.
func TestUnitsElastic(t *testing.T) {
	watch(t)
	set, _ := newDocuments(t, 400)
	r := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []units.Kind{units.Pack, units.Bucket} {
		whole := packedOptions(100)
		whole.Units.Kind, whole.GlobalBatch, whole.Epochs = kind, 1, 2
		var want []string
		for b, err := range set.stream(t, whole).Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, unitsOf(b)...)
		}
		for range 3 {
			o := whole
			o.Tuning.Plans = t.TempDir()
			o.GlobalBatch = 4 // one for each lane, so that batches have the order of positions but for turns
			var got []string
			for o.Checkpoint == nil || o.Checkpoint.Place().Epoch < 2 {
				o.World, o.GlobalBatch = 1+r.IntN(3), 1+r.IntN(9)
				o.Cost = []string{"", "tokens^2", "tokens + 0.01*tokens^2"}[r.IntN(3)]
				if o.MicroBatches = 0; o.Cost != "" && o.GlobalBatch >= o.World {
					o.MicroBatches = 1 + r.IntN(o.GlobalBatch/o.World)
				}
				got = append(got, unitChain(t, set, &o, 1+r.IntN(6))...)
				for _, name := range globbed(t, o.Tuning.Plans) {
					if r.IntN(3) == 0 {
						if err := os.WriteFile(name, []byte("damaged"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			slices.Sort(got)
			sorted := slices.Clone(want)
			slices.Sort(sorted)
			if !slices.Equal(got, sorted) {
				t.Fatalf("%s: a chain delivers %d units, other than the %d of one process", kind, len(got), len(want))
			}
		}
	}
}

func globbed(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil || len(names) == 0 {
		t.Fatal("nothing is kept", err)
	}
	return names
}

// unitChain reads some steps of all ranks, and moves the checkpoint.
func unitChain(t *testing.T, set *streamed, o *StreamOptions, steps int) (units []string) {
	t.Helper()
	streams := make([]*Stream, o.World)
	for rank := range streams {
		p := *o
		p.Rank, p.Tuning.Workers = rank, 1
		streams[rank] = set.stream(t, p)
		defer streams[rank].Close()
	}
	for range steps {
		for _, s := range streams {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			units = append(units, unitsOf(b)...)
			cp, err := b.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			o.Checkpoint = throughText(t, cp)
		}
	}
	return units
}

// What is wrong with lengths is found before anything is delivered, and named.
func TestUnitsRefused(t *testing.T) {
	watch(t)
	samples, lengths := testset.Documents(60)
	build := func(value func(key string) (int64, bool)) *streamed {
		return newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 6000, ShardSize: 30_000, Integer: value})
	}
	wrong := func(key string, n int64, ok bool) func(string) (int64, bool) {
		return func(k string) (int64, bool) {
			if k == key {
				return n, ok
			}
			return int64(lengths[k]), true
		}
	}
	for name, c := range map[string]struct {
		value func(string) (int64, bool)
		err   string
	}{
		"missing":  {wrong("d0041", 0, false), `sample "d0041": sample 41 has no value of attribute "tokens"`},
		"zero":     {wrong("d0007", 0, true), `sample "d0007": sample 7 has "tokens" of 0: lengths are 1 to 2147483647`},
		"negative": {wrong("d0007", -5, true), `sample 7 has "tokens" of -5`},
		"large":    {wrong("d0007", 1<<31, true), `sample 7 has "tokens" of 2147483648`},
		"none":     {nil, `has no integer attribute "tokens" for the lengths of samples, it has none`},
	} {
		if _, err := build(c.value).Stream(t.Context(), packedOptions(64)); err == nil || !strings.Contains(err.Error(), c.err) || name != "none" && !strings.Contains(err.Error(), "shard ") {
			t.Errorf("%s: %v, want %s", name, err, c.err)
		}
	}
	long := packedOptions(16)
	long.Units.Long = ""
	if _, err := build(wrong("", 0, true)).Stream(t.Context(), long); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "are longer than the length of 16") {
		t.Errorf("long samples: %v", err)
	}
}

// TestUnitsLost: what the policy for long samples leaves out is counted in Info and Stats, and
// logged.
func TestUnitsLost(t *testing.T) {
	set, lengths := newDocuments(t, 100)
	for _, policy := range []units.Long{units.LongDrop, units.LongTruncate, units.LongSplit} {
		o := packedOptions(100)
		o.Units.Long = policy
		var log strings.Builder
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		s := set.stream(t, o)
		for _, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		got := s.Stats().Lengths
		if got != s.Info().Lengths {
			t.Errorf("%s: %+v and %+v", policy, got, s.Info().Lengths)
		}
		s.Close() // the log is written before
		want := units.Summary{Samples: 100, Tokens: got.Tokens, Longest: got.Longest}
		for _, n := range lengths {
			if n > 100 {
				want.Long++
				want.Left += uint64(n)
				want.Cut += uint64(n - 100)
			}
		}
		switch policy {
		case units.LongDrop:
			want.Dropped, want.Cut = want.Long, 0
		case units.LongTruncate:
			want.Truncated, want.Left = want.Long, 0
		default:
			want.Split, want.Cut, want.Left = want.Long, 0, 0
		}
		if got != want || want.Long == 0 {
			t.Errorf("%s: %+v, want %+v", policy, got, want)
		}
		if told := strings.Contains(log.String(), "are longer than a unit"); told != (policy != units.LongSplit) || told != (got.Lost() != "") {
			t.Errorf("%s: %q is told: %v", policy, got.Lost(), told)
		}
	}
}
