package fetch_test

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// jobs yields the jobs that read a data set from front to end, row by row.
func jobs(t *testing.T, c *catalog.Catalog) iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		for n := range int(c.Tables.Shards) {
			s, err := c.Shard(t.Context(), n)
			if err != nil {
				yield(fetch.Job{}, err)
				return
			}
			if !s.Jobs(false, yield) {
				return
			}
		}
	}
}

func open(t *testing.T, store objstore.Store) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(t.Context(), fetch.NewSource(store), "", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestPipelineMemory reads blocks of 1 to 24 MiB in a budget of 8 MiB. What is held exceeds the
// budget only by a job that is alone.
func TestPipelineMemory(t *testing.T) {
	const budget = 8 << 20
	noise := rand.NewChaCha8([32]byte{1})
	var samples []testset.Sample
	for i, mib := range []int{1, 1, 2, 24, 1, 5, 1, 1, 7, 3, 1} {
		s := testset.Sample{Key: fmt.Sprint(i), Fields: []testset.Field{{Name: "x", Data: bytes.Repeat([]byte("abc "), mib<<18)}}}
		if i%2 == 0 {
			_, _ = noise.Read(s.Fields[0].Data)
		}
		samples = append(samples, s)
	}
	for _, o := range []testset.Options{{}, {FrameSize: 1 << 20}, {Plain: true}} {
		store := mem.New()
		if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
			t.Fatal(err)
		}
		c := open(t, store)
		var pool fetch.ScratchPool
		defer pool.Close()
		p := &fetch.Pipeline{Source: c.Source, Pool: &pool, Workers: 3, Memory: budget}
		decoded := 0
		for u, err := range p.Run(t.Context(), jobs(t, c)) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range u.Results {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				decoded += len(r.Decoded)
			}
		}
		if uint64(decoded) != c.Tables.Decoded {
			t.Fatalf("%+v: %d bytes of %d", o, decoded, c.Tables.Decoded)
		}
		if most := p.MostHeld(); most > 2*format.MaxFrame+4<<20 {
			t.Fatalf("%+v: %d bytes were held", o, most)
		}
	}
}
