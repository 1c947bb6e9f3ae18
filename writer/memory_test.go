package writer_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/writer"
)

// watchHeap samples the heap until the function it returns is called, which gives the highest
// growth seen.
func watchHeap(t *testing.T) (peak func() int64) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() int64 { metrics.Read(sample); return int64(sample[0].Value.Uint64()) }
	runtime.GC()
	before, most := read(), int64(0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, read()-before)
			case <-stop:
				return
			}
		}
	})
	return sync.OnceValue(func() int64 {
		close(stop)
		wg.Wait()
		return max(most, read()-before)
	})
}

// TestMemoryIsBounded packs many times the budget, with sample sizes that are hard on buffers.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of memory: make test runs it without the race detector")
	}
	for _, c := range []struct {
		name    string
		plain   bool
		workers int
		sizes   []int64
	}{
		{"small", true, 8, []int64{3000}},
		{"mixed", true, 8, []int64{100, 5 << 20, 3000, 700 << 10}},
		{"frames", true, 8, []int64{15 << 20}},
		{"several frames", true, 8, []int64{20 << 20, 100}},
		{"now and then large", true, 8, nowAndThen()},
		// Encoders take memory in addition to the budget: few workers.
		{"small", false, 2, []int64{3000}},
	} {
		t.Run(fmt.Sprintf("%s/plain=%v", c.name, c.plain), func(t *testing.T) { packZeros(t, c.plain, c.workers, c.sizes) })
	}
}

func sum(sizes []int64) (n int64) {
	for _, s := range sizes {
		n += s
	}
	return n
}

// nowAndThen has a large sample in an irregular rhythm: each of the blocks that take turns gets it
// once.
func nowAndThen() []int64 {
	sizes := slices.Repeat([]int64{1 << 20}, 90)
	for _, i := range []int{0, 11, 20, 27, 37, 45, 56, 62, 71, 79, 85} {
		sizes[i] = 15 << 20
	}
	return sizes
}

// slowZeros take a while, so that as many blocks as the budget allows are under way.
type slowZeros struct{ zeros }

func (z slowZeros) ReadInto(ctx context.Context, p []byte) error {
	if len(p) >= 1<<20 {
		time.Sleep(2 * time.Millisecond)
	}
	return z.zeros.ReadInto(ctx, p)
}

func packZeros(t *testing.T, plain bool, workers int, sizes []int64) {
	const budget = 16 << 20
	most := max(10*budget, sum(sizes))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(budget + 32<<20)) // as the command does: garbage is not what is measured
	st := newDiscard()
	peak := watchHeap(t)
	w := newWriter(t, st, writer.Options{Memory: budget, Workers: workers, Plain: plain, ShardSize: 64 << 20})
	for i, total := 0, int64(0); total < most; i++ {
		n := sizes[i%len(sizes)]
		total += n
		s := writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "z", Payload: slowZeros{zeros{n}}, Size: n}}}
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	res, err := w.Close(t.Context())
	if err != nil || int64(res.PayloadBytes) < most {
		t.Fatalf("%+v, %v", res, err)
	}
	limit := int64(budget + 64<<20)
	if n := 2 * sizes[0]; n > budget {
		limit += n // one block larger than the budget goes alone
	}
	if high := peak(); high > limit {
		t.Errorf("peak of the heap is %d MiB with a budget of %d", high>>20, budget>>20)
	}
}
