package units

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// vectors are the members of testdata/order/mix-vectors.json for units. They were made by a program
// that shares no code with this package.
type vectors struct {
	BestFit []struct {
		Lengths   []uint32
		Size      uint32
		Sequences [][]uint32
	} `json:"best_fit"`
	Units []struct {
		Kind       Kind
		Size       uint32
		Long       Long
		Window     uint32
		Key        string
		Epoch      uint64
		Blocks     []uint32
		Shards     []int
		V, E, W, H uint32
		Lengths    []uint32
		Units      uint64
		First      [][]piece
		Last       [][]piece
	}
}

// piece is a sample number, an offset and a length.
type piece [3]uint64

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/order/mix-vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.BestFit) == 0 || len(v.Units) == 0 {
		t.Fatal("no vectors", err)
	}
	return v
}

func TestVectorsOfBestFit(t *testing.T) {
	for _, c := range readVectors(t).BestFit {
		f := newFormer(Params{Kind: Pack, Size: c.Size, Long: LongError})
		for i, n := range c.Lengths {
			f.add(uint32(i), n)
		}
		n := f.form()
		f.group(n)
		var got [][]uint32
		for u := range n {
			begin := uint32(0)
			if u > 0 {
				begin = f.ends[u-1]
			}
			got = append(got, f.order[begin:f.ends[u]])
		}
		if !reflect.DeepEqual(got, c.Sequences) {
			t.Errorf("%v in %d: got %v, want %v", c.Lengths, c.Size, got, c.Sequences)
		}
	}
}

func TestVectorsOfUnits(t *testing.T) {
	for i, c := range readVectors(t).Units {
		key, err := strconv.ParseUint(c.Key, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		o := mustOrder(t, order.Table{Samples: c.Blocks, ShardFirst: c.Shards[:len(c.Shards)-1]}, order.Params{
			Seed: key, Shuffle: true, Lanes: c.V, RunBlocks: c.E, Delay: c.W, Head: c.H, Affinity: order.AffinityEpoch, Tail: order.TailShort,
		})
		u, err := New(o, c.Lengths, Params{Kind: c.Kind, Size: c.Size, Long: c.Long, Window: c.Window})
		if err != nil {
			t.Fatal(i, err)
		}
		plan := mustPlan(t, u, c.Epoch)
		if plan.Units() != c.Units {
			t.Errorf("units %d: %d units, want %d", i, plan.Units(), c.Units)
		}
		for _, part := range []struct {
			position uint64
			size     int
			want     [][]piece
		}{{0, 5, c.First}, {c.Units - 4, 4, c.Last}} {
			cursor, err := u.Seek(c.Epoch, part.position, plansOf(t, u))
			if err != nil {
				t.Fatal(i, err)
			}
			refs, b, err := cursor.NextBatch(nil, order.Split{GlobalBatch: part.size, World: 1})
			if got := pieces(refs, b.Cuts); err != nil || !reflect.DeepEqual(got, part.want) {
				t.Errorf("units %d at %d: got %v, %v, want %v", i, part.position, got, err, part.want)
			}
		}
	}
}

// pieces are the units of a batch.
func pieces(refs []order.Ref, cuts []order.Cut) (units [][]piece) {
	for i, cut := range cuts {
		if int(cut.Unit) == len(units) {
			units = append(units, nil)
		}
		units[cut.Unit] = append(units[cut.Unit], piece{refs[i].Number, uint64(cut.Offset), uint64(cut.Length)})
	}
	return units
}

func mustOrder(t testing.TB, table order.Table, p order.Params) *order.Plan {
	t.Helper()
	o, err := order.New(table, "d", p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustPlan(t testing.TB, u *Units, epoch uint64) *Plan {
	t.Helper()
	p, err := u.Plan(context.Background(), epoch, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// plansOf makes plans when they are asked for.
func plansOf(t testing.TB, u *Units) Plans {
	return func(epoch uint64) (*Plan, error) { return u.Plan(context.Background(), epoch, 1, nil) }
}
