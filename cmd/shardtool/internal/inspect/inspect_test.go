package inspect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// open builds a data set of n samples, sample i with i bytes.
func open(t *testing.T, n int, o testset.Options) *reader.Dataset {
	t.Helper()
	var samples []testset.Sample
	for i := range n {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%03d", i), Fields: []testset.Field{{Name: "x", Data: bytes.Repeat([]byte{7}, i)}}})
	}
	store := mem.New()
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

func TestSizes(t *testing.T) {
	d := open(t, 64, testset.Options{BlockSize: 4000, ShardSize: 12_000})
	h, read, err := Sizes(t.Context(), d, 100)
	if want := (Histogram{1, 1, 2, 4, 8, 16, 32}); err != nil || read != d.NumShards() || *h["x"] != want {
		t.Errorf("%v of %d shards, %v", h["x"], read, err)
	}
	h, read, err = Sizes(t.Context(), d, 1)
	if err != nil || read != 1 || h["x"][0] != 1 || h["x"][6] != 0 {
		t.Errorf("the first shard: %v of %d, %v", h["x"], read, err)
	}
}

func TestDifference(t *testing.T) {
	o := testset.Options{BlockSize: 4000, ShardSize: 12_000}
	a := open(t, 64, o)
	for _, c := range []struct {
		b    *reader.Dataset
		want string
	}{
		{open(t, 64, o), ""},
		{open(t, 64, testset.Options{BlockSize: 2000, ShardSize: 12_000}), "shard 0 differs"},
		{open(t, 80, o), "shard "},
		{without(t, a, 7), "0 samples are removed from the first, 1 from the second; sample 7 is removed from one"},
	} {
		if got, err := Difference(t.Context(), a, c.b); err != nil || !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q, %v; want %q", got, err, c.want)
		}
	}
	if got, err := Difference(t.Context(), without(t, a, 7, 9), without(t, a, 7, 8, 9)); err != nil || !strings.HasSuffix(got, "; sample 8 is removed from one of them only") {
		t.Errorf("%q, %v", got, err)
	}
}

// without opens a data set again, with samples removed.
func without(t *testing.T, d *reader.Dataset, numbers ...uint64) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), d.Store(), reader.Options{Removed: numbers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestLanes compares each lane's next sample with the place that the data set gives its number.
func TestLanes(t *testing.T) {
	d := open(t, 200, testset.Options{BlockSize: 4000, ShardSize: 12_000, FrameSize: 1000})
	table, err := d.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := order.New(table, format.DigestString(d.Digest()), order.Params{
		Seed: 1, Shuffle: true, Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, Affinity: order.AffinityEpoch, Tail: order.TailShort})
	if err != nil {
		t.Fatal(err)
	}
	for _, position := range []uint64{0, 77, 199} {
		lanes, err := Lanes(t.Context(), d, plan, 0, position)
		if err != nil || len(lanes) != 3 {
			t.Fatalf("%v, %v", lanes, err)
		}
		done := uint64(0)
		for _, l := range lanes {
			if done += l.Done; l.Done == l.Length {
				if l.Shard != "" {
					t.Errorf("a lane that is done: %+v", l)
				}
				continue
			}
			at, err := d.Locate(t.Context(), l.Number)
			if err != nil {
				t.Fatal(err)
			}
			ix, err := d.Index(t.Context(), at.Shard)
			if err != nil {
				t.Fatal(err)
			}
			offset, block := int64(0), 0
			for i, r := range ix.Rows {
				if r.Samples > 0 && i > 0 {
					block++
				}
				if block == l.Block {
					break
				}
				offset += int64(r.Stored)
			}
			if at.Block != l.Block || offset != l.Offset || l.Shard == "" {
				t.Errorf("position %d: %+v, want %+v at %d", position, l, at, offset)
			}
		}
		if done != position {
			t.Errorf("position %d: the lanes have done %d", position, done)
		}
	}
}
