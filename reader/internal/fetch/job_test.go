package fetch

import (
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestBlockRange: the jobs of a shard with marks are those of one without, also where blocks have
// several rows.
func TestBlockRange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for blocks := range 3*markEvery + 2 {
		plain := &Shard{First: 77}
		for range blocks {
			plain.Rows = append(plain.Rows, format.Row{Stored: random.Uint32N(1000), Samples: 1 + random.Uint32N(9)})
			for random.IntN(4) == 0 {
				plain.Rows = append(plain.Rows, format.Row{Stored: random.Uint32N(1000)})
			}
		}
		marked := *plain
		marked.Mark()
		if want := (blocks + markEvery - 1) / markEvery; len(marked.marks) != want {
			t.Fatalf("%d marks of %d blocks, want %d", len(marked.marks), blocks, want)
		}
		for first := range blocks {
			count := 1 + random.IntN(blocks-first)
			got, want := marked.BlockRange(first, count), plain.BlockRange(first, count)
			if got.Shard != &marked {
				t.Fatal("the job is not of the shard")
			}
			if got.Shard = plain; got != want {
				t.Fatalf("blocks %d to %d of %d: %+v, want %+v", first, first+count, blocks, got, want)
			}
		}
	}
}
