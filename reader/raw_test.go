package reader

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
)

// images are samples that do not compress, of up to 300 KB, with a small field each.
func images(n int) []testset.Sample {
	rnd := rand.NewChaCha8([32]byte{1})
	out := make([]testset.Sample, n)
	for i := range out {
		data := make([]byte, rnd.Uint64()%300_000)
		_, _ = rnd.Read(data)
		out[i] = testset.Sample{Key: fmt.Sprintf("folder/%05d", i), Fields: []testset.Field{
			{Name: "cls", Data: fmt.Append(nil, i%7)}, {Name: "jpg", Data: data},
		}}
	}
	return out
}

// TestLargeRawBlocks streams blocks that are stored raw and read where they are used: the samples
// are right, also where a payload lies in several raw blocks, from a disk and from a remote store,
// and with a first read of each block that is wrong.
func TestLargeRawBlocks(t *testing.T) {
	watch(t)
	samples := images(120)
	order := StreamOptions{Shuffle: true, GlobalBatch: 10, Epochs: 2, Order: OrderOptions{Lanes: 4, Delay: 2}}
	for _, plain := range []bool{false, true} {
		store := build(t, samples, testset.Options{BlockSize: 1 << 20, ShardSize: 6 << 20, Raw: !plain, Plain: plain})
		for name, s := range map[string]objstore.Store{"memory": store.Clone(), "disk": onDisk(t, store)} {
			set := &streamed{open(t, s, Options{Workers: 2}), samples}
			set.follow(t, order).rest(t)
			for i, l := range blocksOf(t, set.Dataset) {
				if name != "memory" || i%5 != 0 {
					continue
				}
				f := set.flipped(t, store.Clone(), l).follow(t, order)
				if err := f.untilNeeded(t, l.has); !errors.Is(err, format.ErrCorrupt) || errors.Is(err, io.EOF) {
					t.Fatalf("block %d: %v", l.block, err)
				}
				f.Close()
			}
		}
	}
}
