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

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/objstore"
)

// streamEpochs is how many epochs a measured stream has: in the first, memory is taken from the
// system, as in any long run.
const streamEpochs = 4

// benchOrder is the order that figures are for: a memory that a training host has, and the default
// lanes.
var benchOrder = StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: 256, Tail: "short", Epochs: streamEpochs, Order: OrderOptions{ShuffleMemory: 128 << 20}}

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
		return streamEpochs * int64(d.Info().DecodedBytes)
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
				b.SetBytes(streamEpochs * int64(d.Info().DecodedBytes))
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
		one.Tuning.Workers = 2
		compare(b, streamRanks(text, 8, benchOrder), streamRanks(text, 1, one))
	})
	b.Run("images/ranks=2/goal=0.75", func(b *testing.B) {
		compare(b, streamRanks(images, 2, benchOrder), timesEpochs(readCheck(b, images, 2)))
	})
}

// BenchmarkAccounts reports the share of a stream's processor time that the account of waits takes,
// as cost: 0.01 is one per cent. Two runs of a stream differ by more than that, so the account's
// own calls are timed alone, for a piece that the consumer waits for, and multiplied by the number
// of blocks and batches: an upper bound, since a piece may have several blocks.
func BenchmarkAccounts(b *testing.B) {
	const calls = 100_000
	for _, name := range []string{"text", "images"} {
		for _, batch := range []int{256, 16} {
			b.Run(fmt.Sprintf("%s/batch=%d/goal=0.01", name, batch), func(b *testing.B) {
				o := benchOrder
				o.GlobalBatch, o.Tuning.NoAutotune = batch, true
				d := open(b, pack(b, name), Options{Workers: 2})
				units := streamEpochs * float64(d.Info().Blocks+d.NumSamples()/uint64(batch))
				stream := streamRanks(pack(b, name), 2, o)
				c, p := new(account.Clock), new(account.Piece)
				var costs []float64
				for b.Loop() {
					before := processorTime()
					stream(b)
					used := processorTime() - before
					before = processorTime()
					for range calls {
						accountOf(c, p)
					}
					costs = append(costs, (processorTime()-before)/calls*units/used)
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

// accountOf makes the calls for a piece that the consumer waits for, from its place in the queue to
// the batch handed over.
func accountOf(c *account.Clock, p *account.Piece) {
	now := time.Now()
	c.Begin(now)
	c.Plan(account.PlanQueue)
	c.Move(p, account.Queued)
	c.Plan(account.PlanOrder)
	c.Await(p, false)
	for _, to := range []account.Stage{account.Reading, account.Room, account.Reading, account.Decoding, account.Landed} {
		c.Move(p, to)
	}
	c.Await(nil, false)
	c.Hand(1)
	c.End(now)
	c.Hand(-1)
}
