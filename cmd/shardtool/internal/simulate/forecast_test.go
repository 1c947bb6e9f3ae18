package simulate

import (
	"math"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// TestForecast is what a walk through the same steps counts.
func TestForecast(t *testing.T) {
	for _, tail := range []order.Tail{order.TailShort, order.TailWrap} {
		plan, orders, sources := newMix(t, tail)
		m := plan.Mix()
		sizes := []Size{{20_000, 3 * m.Sources[0].Units}, {80_000, 5 * m.Sources[1].Units}, {30_000, 7 * m.Sources[2].Units}}
		for _, c := range []struct {
			at              mix.Steps
			position, steps uint64
			leftOut         []mix.Range
		}{
			{mix.Steps{GlobalBatch: 32}, 0, 50, nil},
			{mix.Steps{Step: 7, Position: 96, GlobalBatch: 50}, 96, 40, nil},
			{mix.Steps{GlobalBatch: 10}, 0, 40, []mix.Range{{From: 20, To: 60}, {From: 390, To: 900}}},
			{mix.Steps{GlobalBatch: 700}, 0, 0, nil},
		} {
			f, err := NewForecast(plan, c.at, c.position, c.steps, sizes, c.leftOut)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Mix(t.Context(), plan, c.position, orders, sources, Options{End: f.End, LeftOut: c.leftOut, GlobalBatch: c.at.GlobalBatch})
			if err != nil {
				t.Fatal(err)
			}
			if c.leftOut == nil && f.End != r.End || f.Step != c.at.Step || f.Steps != max(c.steps, 1) || f.Position != r.Position {
				t.Errorf("%+v: %+v, walked %+v", c, f, r)
			}
			var tokens, share, bytes float64
			for i, s := range f.Sources {
				w := r.Sources[i]
				if s.Samples != w.Samples || s.Share != w.Share || *s.Tokens != uint64(3+2*i)*w.Samples || c.leftOut == nil && math.Abs(s.Epochs-s.EpochsBefore-w.Epochs) > 1e-9 {
					t.Errorf("%+v: %+v, walked %+v", c, s, w)
				}
				if want := float64(w.Samples) * float64(sizes[i].Bytes) / float64(m.Sources[i].Units); math.Abs(float64(s.Bytes)-want) >= 1 {
					t.Errorf("%+v: %+v, want %g bytes", c, s, want)
				}
				tokens, share, bytes = tokens+float64(*s.Tokens), share+*s.TokenShare, bytes+s.ByteShare
			}
			if math.Abs(share-1) > 1e-9 || math.Abs(bytes-1) > 1e-9 || math.Abs(*f.Sources[1].TokenShare-float64(*f.Sources[1].Tokens)/tokens) > 1e-9 {
				t.Errorf("shares of tokens and bytes add up to %g, %g: %+v", share, bytes, f.Sources)
			}
		}
		sizes[2].Tokens = 0
		f, err := NewForecast(plan, mix.Steps{GlobalBatch: 32}, 0, 50, sizes, nil)
		if err != nil || f.Sources[2].Tokens != nil || f.Sources[0].TokenShare != nil || f.Sources[0].Tokens == nil {
			t.Errorf("tokens of one source are not known: %+v, %v", f, err)
		}
	}
}

// TestForecastEvents: segments, sources with max_epochs, and the end of the stream.
func TestForecastEvents(t *testing.T) {
	plan, _, _ := newMix(t, order.TailShort)
	m := plan.Mix()
	f, err := NewForecast(plan, mix.Steps{GlobalBatch: 32}, 0, 1, make([]Size, 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Events) != 2 || f.Events[0].Kind != SourceEnds || f.Events[0].Source != "c" || f.Events[1].Kind != SegmentBegins || f.Events[1].Position != 900 || f.Events[1].Weights[1] != 0.5 || f.Events[0].Weights[0] != 2.0/3 || f.Events[0].Weights[2] != 0 {
		t.Fatalf("%+v", f.Events)
	}
	counts, err := plan.Counts(nil, f.Events[0].Position)
	if err != nil || counts[2] != m.Sources[2].Units {
		t.Errorf("c ends at %d, where it has given %d: %v", f.Events[0].Position, counts[2], err)
	}
	for i := range m.Sources {
		m.Sources[i].MaxEpochs = 3
	}
	if plan, err = mix.New(m); err != nil {
		t.Fatal(err)
	}
	if f, err = NewForecast(plan, mix.Steps{GlobalBatch: 32}, 0, 1e6, make([]Size, 3), nil); err != nil {
		t.Fatal(err)
	}
	if last := f.Events[len(f.Events)-1]; last.Kind != StreamEnds || last.Position != endOf(t, plan) || f.End != endOf(t, plan) || last.Step == 0 {
		t.Errorf("%+v, the end is at %d", f, endOf(t, plan))
	}
	if _, err := NewForecast(plan, mix.Steps{GlobalBatch: 32}, 0, 1, nil, nil); err == nil {
		t.Error("no sizes")
	}
}

func endOf(t *testing.T, plan *mix.Plan) uint64 {
	t.Helper()
	end, err := plan.End()
	if err != nil {
		t.Fatal(err)
	}
	return end
}
