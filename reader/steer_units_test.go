package reader_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// TestSetWeightsOfUnits: packed sequences, shares of tokens, costs and limits of epochs: a stream
// that sets weights has the batches of one that begins at its checkpoint, and the weights are those
// that a mix file would have. Sources may have had no weight before.
func TestSetWeightsOfUnits(t *testing.T) {
	sets := []*reader.Dataset{newUnitSet(t, 1, 200).Dataset, newUnitSet(t, 2, 100).Dataset, newUnitSet(t, 3, 80).Dataset}
	pack := units.Params{Kind: units.Pack, Size: 64, Long: units.LongSplit, Window: 16, By: "tokens"}
	bucket := units.Params{Kind: units.Bucket, Size: 300, Long: units.LongSplit, Window: 16, By: "tokens"}
	for name, c := range map[string]struct {
		units units.Params
		more  string // of the mix
		limit string // of each source
		cost  string
	}{
		"sequences": {units: pack}, "micro-batches": {units: bucket}, "limited": {units: pack, limit: ", max_epochs: 2"},
		"tokens": {more: "count: tokens\n"}, "sequences by tokens": {units: pack, more: "count: tokens\n"},
		"costs": {cost: "tokens"}, "costs of sequences": {units: pack, cost: "tokens^2"},
	} {
		if testing.Short() && c.cost == "" && c.units.Kind == units.Pack {
			continue
		}
		t.Run(name, func(t *testing.T) {
			mix := func(a, b, c0 string) string {
				more := c.limit + ", order: {lanes: 4, run_blocks: 1, delay: 3, head: 2}" // units depend on it
				return fmt.Sprintf("%sepoch: 400\nsources:\n  a: {data: a, weight: %s%s}\n  b: {data: b, weight: %s%s}\n  c: {data: c, weight: %s%s}\n",
					c.more, a, more, b, more, c0, more)
			}
			open := func(text string, from *reader.Checkpoint, rank int) *reader.Stream {
				x, err := openSources(t, text, sets...)
				if err != nil {
					t.Fatal(err)
				}
				asked := reader.Spec{Units: c.units, Order: order.Choice{Seed: 5, Shuffle: true, Tail: order.TailShort, GlobalBatch: 16}}
				asked.Cost = c.cost
				run, err := x.Resolve(t.Context(), asked, from, reader.Change{}, reader.Planning{})
				if err != nil {
					t.Fatal(err)
				}
				s, err := run.Stream(t.Context(), reader.StreamOptions{Rank: rank, World: 2})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					s.Close()
					run.Close()
				})
				return s
			}
			// next lists a batch, or is empty at the end.
			next := func(s *reader.Stream) string {
				b, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					return ""
				}
				if err != nil {
					t.Fatal(err)
				}
				var text strings.Builder
				fmt.Fprint(&text, b.Position, b.NextPosition)
				for i := range b.Samples {
					fmt.Fprintf(&text, " %s/%d/%d/%v", b.Samples[i].Source(), b.Samples[i].Epoch, b.Samples[i].Number, b.Cut(i))
				}
				return text.String()
			}
			text := mix("1", "3", "0")
			for rank := range 2 {
				s := open(text, nil, rank)
				for k, weights := range []map[string]float64{{"a": 1, "b": 1}, {"a": 0.25, "b": 0.5}, {"b": 2, "a": 3}} {
					if c.cost == "" || c.units.Kind == "" { // costs of units of a source without weight are not known
						weights["c"] = float64(k)
					}
					for range 3 {
						next(s)
					}
					if err := s.SetWeights(weights); err != nil {
						t.Fatal(err)
					}
					at, err := s.Checkpoint()
					if err != nil {
						t.Fatal(err)
					}
					asked := open(mix(fmt.Sprint(weights["a"]), fmt.Sprint(weights["b"]), fmt.Sprint(weights["c"])), nil, rank)
					want, err := asked.Checkpoint()
					if err != nil {
						t.Fatal(err)
					}
					if got, want := fmt.Sprint(at.Mix.Segments[0].Weights), fmt.Sprint(want.Mix.Segments[0].Weights); got != want {
						t.Errorf("%v are the weights %s, of a mix file %s", weights, got, want)
					}
					fresh := open(text, &at, rank)
					for range 10 {
						got, want := next(s), next(fresh)
						if got != want {
							t.Fatalf("after %v:\n%s\n%s", weights, got, want)
						}
					}
				}
			}
			if c.cost != "" && c.units.Kind != "" {
				s := open(text, nil, 0)
				if err := s.SetWeights(map[string]float64{"c": 1}); !errors.Is(err, reader.ErrOptions) || !strings.Contains(err.Error(), "their costs were not read") {
					t.Errorf("a source without costs: %v", err)
				}
			}
		})
	}
}
