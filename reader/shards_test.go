package reader

import (
	"errors"
	"io"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestStreamOfShards reads some shards in batches that end where shards do, of the whole data set
// and of a view.
func TestStreamOfShards(t *testing.T) {
	watch(t)
	documents, _ := testset.Documents(300)
	d := newStreamed(t, mem.New(), documents, testset.Options{BlockSize: 16 << 10, ShardSize: 90 << 10})
	table, err := d.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends := []uint64{0}
	for i := 1; i <= len(table.ShardFirst); i++ {
		end := len(table.Samples)
		if i < len(table.ShardFirst) {
			end = table.ShardFirst[i]
		}
		sum := ends[i-1]
		for _, n := range table.Samples[table.ShardFirst[i-1]:end] {
			sum += uint64(n)
		}
		ends = append(ends, sum)
	}
	last := len(ends) - 1
	if last < 4 {
		t.Fatalf("%d shards", last)
	}
	check := func(shards [2]int, has func(uint64) bool) {
		t.Helper()
		s := d.stream(t, StreamOptions{GlobalBatch: 20, Epochs: 1, Shards: shards})
		want := ends[shards[0]]
		for shard := shards[0]; ; {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Len() {
				for !has(want) {
					want++
				}
				if n := b.Ref(i).Number; n != want {
					t.Fatalf("shards %v: sample %d, want %d", shards, n, want)
				}
				for want >= ends[shard+1] {
					if shard++; i > 0 {
						t.Fatalf("shards %v: sample %d begins a shard within a batch", shards, want)
					}
				}
				want++
			}
		}
		for want < ends[shards[1]] && !has(want) {
			want++
		}
		if want != ends[shards[1]] {
			t.Errorf("shards %v end before sample %d, want %d", shards, want, ends[shards[1]])
		}
	}
	all := func(uint64) bool { return true }
	for _, shards := range [][2]int{{0, last}, {0, 1}, {last - 1, last}, {1, 4}, {2, 3}} {
		check(shards, all)
	}
	for _, o := range []StreamOptions{{Shards: [2]int{2, 2}}, {Shards: [2]int{0, last + 1}}, {Shards: [2]int{-1, 2}}, {Shards: [2]int{0, 1}, Shuffle: true}, {Shards: [2]int{0, 1}, World: 2}} {
		o.Epochs = 1
		if _, err := d.Stream(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	v := &viewfile.View{Digest: d.Digest(), Samples: 300, Chosen: make([]byte, 38)}
	odd := func(n uint64) bool { return n%3 == 1 && (n < ends[2] || n >= ends[3]) }
	for n := range uint64(300) {
		if odd(n) {
			v.Chosen[n/8] |= 1 << (n % 8)
		}
	}
	if err := d.UseView(v); err != nil {
		t.Fatal(err)
	}
	for _, shards := range [][2]int{{0, last}, {1, 4}, {2, 3}, {3, last}} {
		check(shards, odd)
	}
}
