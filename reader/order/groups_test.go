package order

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// loads counts the shards that were loaded, and those of them that were expected before the load
// before.
type loads struct{ all, early int }

// grouped is the table with groups of so many blocks. Load fails from call fail on, never if it is
// negative.
func grouped(t Table, grain uint32, fail int, boom error, count *loads) Table {
	g := &Groups{Blocks: len(t.Samples), Grain: grain}
	for i, first := range t.ShardFirst {
		for end := t.shardEnd(i); first < end; first += int(grain) {
			sum := uint32(0)
			for _, n := range t.Samples[first:min(first+int(grain), end)] {
				sum += n
			}
			g.Samples = append(g.Samples, sum)
		}
	}
	all, expected, now := t, map[int]int{}, 1
	g.Expect = func(_ context.Context, shard int) { expected[shard] = cmp.Or(expected[shard], now) }
	g.Load = func(_ context.Context, shard int) ([]uint32, error) {
		if expected[shard] == 0 {
			return nil, errors.New("nobody said that the shard would be wanted")
		}
		if count.all++; expected[shard] < now {
			count.early++
		}
		now++
		if fail--; fail == -1 {
			return nil, boom
		}
		return slices.Clone(all.Samples[all.ShardFirst[shard]:all.shardEnd(shard)]), nil
	}
	t.Samples, t.Groups = nil, g
	return t
}

// TestGroups: an order over groups is the order over blocks, from any place, for any rank, and with
// any tail; spans, heads of lanes and parts included.
func TestGroups(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	walked, several, count := 0, 0, loads{}
	for range 400 {
		table, p := randomTable(rnd), randomParams(rnd)
		table.View = nil
		grain := uint32(1 + rnd.IntN(5))
		if p.RunBlocks > 0 {
			p.RunBlocks = grain * uint32(1+rnd.IntN(3))
		}
		groups := grouped(table, grain, -1, nil, &count)
		a := mustPlan(t, table, p)
		b, err := New(groups, "", p)
		if err != nil {
			t.Fatalf("grain %d, %+v: %v", grain, p, err)
		}
		if a.Samples() != b.Samples() || a.Stored() != b.Stored() || a.Whole() != b.Whole() {
			t.Fatalf("%d of %d samples, want %d of %d", b.Samples(), b.Stored(), a.Samples(), a.Stored())
		}
		if a.Samples() == 0 {
			continue
		}
		choice := Choice{Shuffle: p.Shuffle, Memory: 1 << 40, Lanes: p.Lanes, RunBlocks: p.RunBlocks, WholeShards: p.RunBlocks == 0}
		if want, err := Choose(table, choice); err == nil {
			if got, err := Choose(groups, choice); err != nil || got != want {
				t.Fatalf("chose %+v, want %+v: %v", got, want, err)
			}
		}
		epoch, at := rnd.Uint64N(3), rnd.Uint64N(a.Samples())
		ca, cb := mustSeek(t, a, epoch, at), mustSeek(t, b, epoch, at)
		for range 12 {
			world := 1 + rnd.IntN(4)
			s := Split{1 + rnd.IntN(60), rnd.IntN(world), world}
			if p.Tail == TailDrop {
				s.GlobalBatch = min(s.GlobalBatch, int(min(a.Samples(), 60)))
			}
			want, batch, err := ca.NextBatch(nil, s)
			got, also, err2 := cb.NextBatch(nil, s)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if !slices.Equal(got, want) || !reflect.DeepEqual(also, batch) {
				t.Fatalf("grain %d, %+v, %+v: %v in %+v, want %v in %+v", grain, p, s, got, also, want, batch)
			}
			for _, span := range batch.Opened {
				if span.Blocks > 1 {
					several++
				}
			}
			walked += len(got)
		}
		ha, err := a.LaneHeads(epoch, at)
		hb, err2 := b.LaneHeads(epoch, at)
		if len(ha) != len(hb) || err != nil || err2 == nil && !slices.Equal(ha, hb) {
			t.Fatal(ha, hb, err, err2)
		}
	}
	if count.early < count.all*9/10 {
		t.Errorf("%d of %d loads were expected before another one", count.early, count.all)
	}
	if walked < 10_000 || several < 100 {
		t.Errorf("%d samples, %d spans of several blocks", walked, several)
	}
}

// TestGroupsFail: an error of Load ends the cursor, wherever it comes, and gives no batch for one.
func TestGroupsFail(t *testing.T) {
	boom := errors.New("boom")
	table := Table{Samples: []uint32{3, 4, 5, 6, 7, 8, 9}, ShardFirst: []int{0, 3}}
	p := Params{Shuffle: true, Lanes: 2, RunBlocks: 2, Delay: 2, Head: 1, Affinity: AffinityEpoch, Tail: TailWrap}
	whole, failed := mustPlan(t, table, p), 0
	for fail := range 6 {
		plan, err := New(grouped(table, 2, fail, boom, new(loads)), "", p)
		if err != nil {
			t.Fatal(err)
		}
		a, b := mustSeek(t, whole, 0, 0), mustSeek(t, plan, 0, 0)
		for err == nil {
			var got []Ref
			want, _, _ := a.NextPart(nil, 0, 5, 0, 5)
			if got, _, err = b.NextPart(nil, 0, 5, 0, 5); err == nil && !slices.Equal(got, want) {
				t.Fatal(got, want)
			}
		}
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if _, _, err := b.NextBatch(nil, Split{5, 0, 1}); !errors.Is(err, boom) {
			t.Fatal("the cursor goes on:", err)
		}
		failed++
	}
	if failed != 6 {
		t.Error(failed)
	}
	if _, err := New(grouped(table, 2, -1, nil, new(loads)), "", Params{Lanes: 1, RunBlocks: 3, Delay: 1, Head: 1, Affinity: AffinityEpoch, Tail: TailWrap}); err == nil {
		t.Error("runs that cut groups")
	}
	short := grouped(table, 2, -1, nil, new(loads))
	short.Groups.Samples = short.Groups.Samples[1:]
	if _, err := New(short, "", p); err == nil {
		t.Error("a group is missing")
	}
}
