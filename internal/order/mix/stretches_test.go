package mix

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestStretches: what holds when, compared with the counts of every position.
func TestStretches(t *testing.T) {
	m := Mix{Tail: order.TailShort, Epoch: 10, Segments: []Segment{{0, []uint64{2, 1, 1}}, {30, []uint64{0, 1, 3}}, {1000, []uint64{1, 0, 0}}}}
	for i, units := range []uint64{11, 20, 7} {
		m.Sources = append(m.Sources, Source{Name: string(rune('a' + i)), Units: units, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch, MaxEpochs: 3})
	}
	p, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	got := collect(t, p.Stretches(0))
	if len(got) != 4 || got[len(got)-1].To != endOf(t, p) {
		t.Fatalf("%+v, the end is %d", got, endOf(t, p))
	}
	for i, st := range got {
		if i > 0 && (st.From != got[i-1].To || st.Segment < got[i-1].Segment) {
			t.Errorf("%+v after %+v", st, got[i-1])
		}
		before, err := p.Counts(nil, st.To-1)
		if err != nil {
			t.Fatal(err)
		}
		after, err := p.Counts(nil, st.To)
		if err != nil {
			t.Fatal(err)
		}
		for s, weight := range st.Weights {
			open := before[s] < 3*m.Sources[s].Units || after[s] > before[s]
			if want := m.Segments[st.Segment].Weights[s]; open && weight != want || !open && weight != 0 && after[s] < 3*m.Sources[s].Units {
				t.Errorf("%+v: source %d has weight %d, want %d if open: %v", st, s, weight, want, open)
			}
		}
		if i > 0 {
			for _, s := range got[i-1].Ended {
				if st.Weights[s] != 0 {
					t.Errorf("%+v: source %d has ended before", st, s)
				}
			}
		}
		var ended []int
		for s := range after {
			if limit := 3 * m.Sources[s].Units; after[s] == limit && before[s] < limit {
				ended = append(ended, s)
			}
		}
		if !slices.Equal(ended, st.Ended) {
			t.Errorf("%+v: %d end there", st, ended)
		}
		if later := collect(t, p.Stretches(st.To-1)); fmt.Sprint(later) != fmt.Sprint(got[i:]) {
			t.Errorf("from %d: %+v, want %+v", st.To-1, later, got[i:])
		}
	}
	if later := collect(t, p.Stretches(endOf(t, p))); later != nil {
		t.Errorf("after the end: %+v", later)
	}
	m.Sources[0].MaxEpochs = 0 // 2^32
	if p, err = New(m); err != nil {
		t.Fatal(err)
	}
	if got = collect(t, p.Stretches(5000)); len(got) != 1 || got[0].From != 96 || got[0].To < 1<<32 {
		t.Errorf("%+v", got)
	}
}

func collect(t *testing.T, all iter.Seq2[Stretch, error]) (list []Stretch) {
	t.Helper()
	for st, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, st)
	}
	return list
}
