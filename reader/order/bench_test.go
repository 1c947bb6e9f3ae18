package order

import (
	"fmt"
	"runtime"
	"testing"
)

// syntheticTable is n samples in blocks of 300 to 366, 333 on average, in shards of 256 blocks.
func syntheticTable(n uint64) Table {
	var t Table
	for b := uint32(0); n > 0; b++ {
		if b%256 == 0 {
			t.ShardFirst = append(t.ShardFirst, int(b))
		}
		s := min(n, uint64(300+b*2654435761>>16%67))
		t.Samples = append(t.Samples, uint32(s))
		n -= s
	}
	t.Decoded = uint64(len(t.Samples)) << 20
	return t
}

func syntheticParams(t testing.TB, table Table, c Choice) Params {
	t.Helper()
	c.Seed, c.Shuffle = 42, true
	p, err := Choose(table, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var benchmarkSizes = []uint64{1e5, 1e6, 1e7, 1e8, 1e9}

// power writes a power of ten as 1e5, for names that -bench can be given.
func power(n uint64) string { return fmt.Sprintf("1e%d", len(fmt.Sprint(n))-1) }

// BenchmarkPlanSeek is what a start costs before its first read: the plan, a seek and the first
// batch. heap-MB is what is held after it with the table, alloc-MB all that was allocated on the
// way, the table included: an upper bound of the peak.
func BenchmarkPlanSeek(b *testing.B) {
	for _, n := range benchmarkSizes {
		table := syntheticTable(n)
		p := syntheticParams(b, table, Choice{})
		for _, permille := range []uint64{0, 1, 500, 999} {
			b.Run(fmt.Sprintf("samples=%s/permille=%d", power(n), permille), func(b *testing.B) {
				b.ReportAllocs()
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				var rounds uint64
				var c *Cursor
				for b.Loop() {
					plan := mustPlan(b, table, p)
					var err error
					if c, err = plan.Seek(0, n/1000*permille); err != nil {
						b.Fatal(err)
					}
					if _, _, err = c.NextBatch(nil, Split{1024, 0, 1}); err != nil {
						b.Fatal(err)
					}
					rounds++
				}
				runtime.ReadMemStats(&after)
				held := float64(4 * len(table.Samples))
				b.ReportMetric((held+float64(after.TotalAlloc-before.TotalAlloc)/float64(rounds))/1e6, "alloc-MB")
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric((held+float64(after.HeapAlloc)-float64(before.HeapAlloc))/1e6, "heap-MB")
				runtime.KeepAlive(c)
			})
		}
	}
}

// benchmarkRefs reports the time a sample, in batches of one rank. Small tables turn their epochs
// meanwhile.
func benchmarkRefs(b *testing.B, table Table, p Params, s Split) {
	plan := mustPlan(b, table, p)
	c, err := plan.Seek(0, plan.Samples()/3)
	if err != nil {
		b.Fatal(err)
	}
	var refs []Ref
	var samples uint64
	next := func() {
		var err error
		if refs, _, err = c.NextBatch(refs[:0], s); err != nil {
			b.Fatal(err)
		}
		samples += uint64(len(refs))
	}
	// Past the making of the windows.
	for range 20 {
		next()
	}
	samples = 0
	b.ReportAllocs()
	for b.Loop() {
		next()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
}

func BenchmarkSamples(b *testing.B) {
	for _, n := range benchmarkSizes {
		table := syntheticTable(n)
		b.Run(fmt.Sprintf("samples=%s/blocks=333", power(n)), func(b *testing.B) {
			benchmarkRefs(b, table, syntheticParams(b, table, Choice{}), Split{1024, 0, 1})
		})
	}
}

// BenchmarkShapes varies what the size of the data set does not: samples of a block, blocks of a
// run, delay, ranks.
func BenchmarkShapes(b *testing.B) {
	large := syntheticTable(1e8)
	tens := newSortedByClass(1e7, 10, 130, 1000).table
	tens.Decoded = uint64(len(tens.Samples)) << 20
	ones := newSortedByClass(2e6, 1, 130, 1000).table
	ones.Decoded = uint64(len(ones.Samples)) << 20
	for _, c := range []struct {
		name   string
		table  Table
		choice Choice
		split  Split
	}{
		{"blocks=333/E=8/G=1024/R=1", large, Choice{RunBlocks: 8, Delay: 16}, Split{1024, 0, 1}},
		{"blocks=333/E=shard/G=1024/R=1", large, Choice{WholeShards: true, Delay: 4, Lanes: 12}, Split{1024, 0, 1}},
		{"blocks=333/E=1/G=64/R=1", large, Choice{}, Split{64, 0, 1}},
		{"blocks=333/E=1/G=1024/R=8", large, Choice{}, Split{1024, 3, 8}},
		{"blocks=333/E=1/G=1000/R=64", large, Choice{}, Split{1000, 33, 64}},
		{"blocks=333/E=1/G=4096/R=97", large, Choice{}, Split{4096, 50, 97}},
		{"blocks=333/E=1/G=8192/R=1024", large, Choice{}, Split{8192, 500, 1024}},
		{"blocks=10/E=1/W=24/G=1024/R=1", tens, Choice{Delay: 24}, Split{1024, 0, 1}},
		{"blocks=10/E=1/W=1000/G=1024/R=1", tens, Choice{Delay: 1000}, Split{1024, 0, 1}},
		{"blocks=1/E=1/W=16/G=1024/R=1", ones, Choice{Delay: 16}, Split{1024, 0, 1}},
		{"blocks=1/E=1/W=4096/G=1024/R=1", ones, Choice{Delay: 4096}, Split{1024, 0, 1}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkRefs(b, c.table, syntheticParams(b, c.table, c.choice), c.split) })
	}
}

// TestSteadyStateAllocatesNothing covers an epoch's turn too.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	table := syntheticTable(200_000)
	for _, affinity := range []Affinity{AffinityEpoch, AffinityRun} {
		for _, e := range []uint32{1, 3} {
			p := syntheticParams(t, table, Choice{Lanes: 12, RunBlocks: e, Delay: 8, Affinity: affinity})
			c, err := mustPlan(t, table, p).Seek(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			refs := make([]Ref, 0, 2048)
			var samples int
			next := func() {
				if refs, _, err = c.NextBatch(refs[:0], Split{2000, 0, 1}); err != nil {
					t.Fatal(err)
				}
				samples += len(refs)
			}
			for c.epoch < 3 {
				next()
			}
			// Slots differ in size, so a buffer may still grow now and then: none a thousand samples.
			if allocs := testing.AllocsPerRun(200, next); allocs > 1 {
				t.Errorf("affinity %s, E=%d: %.1f allocations in 2000 samples", affinity, e, allocs)
			}
		}
	}
}

// TestPlanMemory: 1e9 samples in 3e6 blocks, table, plan, seek and first batch, in under 64 MB. All
// that is allocated on the way is counted, so the peak is no higher.
func TestPlanMemory(t *testing.T) {
	const n = 1_000_000_000
	table := syntheticTable(n)
	p := syntheticParams(t, table, Choice{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := mustPlan(t, table, p).Seek(0, n/2)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.NextBatch(nil, Split{1024, 0, 1}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc + 4*uint64(len(table.Samples)); bytes > 64e6 {
		t.Errorf("%d bytes for %d blocks", bytes, len(table.Samples))
	}
	runtime.KeepAlive(c)
}
