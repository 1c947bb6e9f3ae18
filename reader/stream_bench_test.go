package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// streamEpochs is how many epochs a measured stream has: in the first, memory is taken from the system, as in any long run.
const streamEpochs = 4

// benchOrder is the order that figures are for: a memory that a training host has, and the default lanes.
var benchOrder = StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: 256, ShuffleMemory: 128 << 20, Tail: "short", Epochs: streamEpochs}

// streamAllRanks streams all epochs on several ranks of one process.
func streamAllRanks(b testing.TB, d *Dataset, ranks int, o StreamOptions) {
	var wg sync.WaitGroup
	for rank := range ranks {
		o := o
		o.Rank, o.World = rank, ranks
		wg.Go(func() {
			s, err := d.Stream(context.Background(), o)
			if err != nil {
				b.Error(err)
				return
			}
			defer s.Close()
			for {
				if _, err := s.Next(context.Background()); err != nil {
					if !errors.Is(err, io.EOF) {
						b.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// streamRanks is the same as a side of a comparison.
func streamRanks(store objstore.Store, ranks int, o StreamOptions) side {
	return func(b testing.TB) int64 {
		d, err := Open(context.Background(), store, Options{Workers: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		streamAllRanks(b, d, ranks, o)
		return streamEpochs * int64(d.DecodedBytes())
	}
}

// timesEpochs repeats a side as often as a stream has epochs.
func timesEpochs(of side) side {
	return func(b testing.TB) (size int64) {
		for range streamEpochs {
			size += of(b)
		}
		return size
	}
}

// BenchmarkStream is streaming shuffled, verified, by ranks of one process with a worker each.
func BenchmarkStream(b *testing.B) {
	for name := range corpora {
		for _, ranks := range []int{1, 2, 8} {
			b.Run(fmt.Sprintf("%s/ranks=%d", name, ranks), func(b *testing.B) {
				d := open(b, pack(b, name), Options{Workers: 1})
				b.SetBytes(streamEpochs * int64(d.DecodedBytes()))
				b.ReportAllocs()
				for b.Loop() {
					streamAllRanks(b, d, ranks, benchOrder)
				}
			})
		}
	}
}

// BenchmarkStreamRatio holds streaming against what the machine can do. The goals are in the names.
func BenchmarkStreamRatio(b *testing.B) {
	text, images := pack(b, "text"), pack(b, "images")
	inMemory := frames(b, text)
	unshuffled := benchOrder
	unshuffled.Shuffle = false
	b.Run("text/ranks=2/goal=0.93", func(b *testing.B) {
		compare(b, streamRanks(text, 2, benchOrder), timesEpochs(decodeAll(inMemory, 2)))
	})
	b.Run("text/shuffled-to-not/goal=0.95", func(b *testing.B) {
		compare(b, streamRanks(text, 2, benchOrder), streamRanks(text, 2, unshuffled))
	})
	b.Run("text/ranks=8-to-1/goal=0.95", func(b *testing.B) {
		one := benchOrder
		one.Workers = 2
		compare(b, streamRanks(text, 8, benchOrder), streamRanks(text, 1, one))
	})
	b.Run("text/accounts-to-none/goal=0.99", func(b *testing.B) {
		with := benchOrder
		with.NoAutotune = true
		without := with
		without.noStalls = true
		compare(b, streamRanks(text, 2, with), streamRanks(text, 2, without))
	})
	b.Run("images/ranks=2/goal=0.75", func(b *testing.B) {
		compare(b, streamRanks(images, 2, benchOrder), timesEpochs(readCheck(b, images, 2)))
	})
}

// BenchmarkAccounts is what the account takes of the processor time of a stream that never waits for anything else, as cost: 0.01 is
// one per cent. It is far below what two runs of a stream differ by. So all that the account does is done sixty times more in one of
// two runs, and a sixtieth of the difference is what it costs; a little less than that, since the caches are warm for what is repeated.
func BenchmarkAccounts(b *testing.B) {
	const again = 60
	for _, name := range []string{"text", "images"} {
		for _, batch := range []int{256, 16} {
			b.Run(fmt.Sprintf("%s/batch=%d/goal=0.01", name, batch), func(b *testing.B) {
				o := benchOrder
				o.GlobalBatch, o.NoAutotune = batch, true
				more := o
				more.stallsAgain = again
				once, often := streamRanks(pack(b, name), 2, o), streamRanks(pack(b, name), 2, more)
				var costs []float64
				for b.Loop() {
					var used [2]float64
					for i, run := range []side{once, often} {
						before := processorTime()
						run(b)
						used[i] = processorTime() - before
					}
					extra := (used[1] - used[0]) / again
					costs = append(costs, extra/(used[0]-extra))
				}
				slices.Sort(costs)
				b.ReportMetric(costs[len(costs)/2], "cost")
				b.ReportMetric(costs[0], "cost-low")
				b.ReportMetric(costs[len(costs)-1], "cost-high")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkStallClock is what the account costs for a piece that the consumer waits for, from its place in the queue to the batch
// handed over: it stands against some milliseconds of decoding.
func BenchmarkStallClock(b *testing.B) {
	c, p := &stallClock{}, &piece{}
	b.ReportAllocs()
	for b.Loop() {
		c.begin(time.Now())
		c.plan(planQueue)
		c.move(p, pieceQueued)
		c.plan(planOrder)
		c.await(p, false)
		for _, to := range []doing{pieceReading, pieceRoom, pieceReading, pieceDecoding, pieceLanded} {
			c.move(p, to)
		}
		c.await(nil, false)
		c.hand(1)
		c.end(time.Time{})
		c.hand(-1)
	}
}
