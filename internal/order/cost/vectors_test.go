package cost

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/reader/order"
)

const vectorsFile = "../../../testdata/order/cost-vectors.json"

func number[T int64 | uint64](t *testing.T, text string, parse func(string, int, int) (T, error)) T {
	t.Helper()
	n, err := parse(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestVectors: the recorded costs and splits.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Costs []struct {
			Cost   string
			Values map[string]string
			Want   *string
		}
		Splits []struct {
			Costs []string
			Real  int
			World int `json:"world_size"`
			Group int
			Micro int `json:"micro_batches"`
			Ranks [][]int
		}
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Costs) < 20 || len(v.Splits) < 10 {
		t.Fatalf("%d costs, %d splits", len(v.Costs), len(v.Splits))
	}
	for _, c := range v.Costs {
		e, err := Parse(c.Cost)
		if err != nil {
			t.Fatal(err)
		}
		var values []int64
		for _, name := range e.Names {
			values = append(values, number(t, c.Values[name], strconv.ParseInt))
		}
		got, err := e.Cost(values)
		if (err == nil) != (c.Want != nil) || err == nil && got != number(t, *c.Want, strconv.ParseUint) {
			t.Errorf("%s of %v: %d, %v", c.Cost, c.Values, got, err)
		}
	}
	var d Dealer
	for i, s := range v.Splits {
		var costs []uint64
		for _, text := range s.Costs {
			costs = append(costs, number(t, text, strconv.ParseUint))
		}
		begins := func(rank int) int { return int(order.Share(uint64(len(costs)), rank, s.World)) }
		for first := 0; first < s.World; first += s.Group {
			from, to := begins(first), begins(first+s.Group)
			var counts []int
			for rank := first; rank < first+s.Group; rank++ {
				counts = append(counts, begins(rank+1)-begins(rank))
			}
			got := make([][]int, s.Group)
			for k, rank := range d.Deal(nil, costs[from:to], min(max(s.Real-from, 0), to-from), counts) {
				got[rank] = append(got[rank], from+k)
			}
			for rank := range got {
				if s.Micro > 0 {
					got[rank] = divided(&d, costs, s.Real, got[rank], first+rank, s.World, s.Micro)
				}
				if !slices.Equal(got[rank], s.Ranks[first+rank]) {
					t.Errorf("split %d: rank %d has %v, want %v", i, first+rank, got[rank], s.Ranks[first+rank])
				}
			}
		}
	}
}

// divided returns the places of a rank, micro-batch by micro-batch.
func divided(d *Dealer, all []uint64, real int, places []int, rank, world, micro int) (out []int) {
	var costs []uint64
	var counts []int
	own := 0
	for _, k := range places {
		if costs = append(costs, all[k]); k < real {
			own = len(costs)
		}
	}
	for part := rank * micro; part < (rank+1)*micro; part++ {
		listed := uint64(len(all))
		counts = append(counts, int(order.Share(listed, part+1, world*micro)-order.Share(listed, part, world*micro)))
	}
	left := own // padding has the last places
	for m := range counts {
		counts[m] = min(counts[m], left)
		left -= counts[m]
	}
	of := d.Deal(nil, costs[:own], own, counts)
	for m := range micro {
		for i, k := range places[:own] {
			if of[i] == int32(m) {
				out = append(out, k)
			}
		}
	}
	return append(out, places[own:]...)
}

// TestPythonVectors: the second implementation, python/oracle/costs.py, was written from ORDER.md
// alone.
func TestPythonVectors(t *testing.T) {
	if out := programs.Python(t, nil, "../../../python/cost_check.py", vectorsFile); !strings.HasSuffix(out, " 0 differ\n") {
		t.Errorf("got %q", out)
	}
}
