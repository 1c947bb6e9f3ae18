package reader

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader/check"
)

// adapt turns a corpus into what testset packs.
func adapt(samples iter.Seq[corpus.Sample]) iter.Seq[testset.Sample] {
	return func(yield func(testset.Sample) bool) {
		for s := range samples {
			out := testset.Sample{Key: s.Key}
			for _, f := range s.Fields {
				out.Fields = append(out.Fields, testset.Field{Name: f.Name, Data: f.Data})
			}
			if !yield(out) {
				return
			}
		}
	}
}

// corpora are what is measured: text of 3 KB a sample, which compresses; images of 100 KB, which do
// not.
var corpora = map[string]func() iter.Seq[corpus.Sample]{
	"text":   func() iter.Seq[corpus.Sample] { return corpus.Text(corpus.Options{Samples: 120_000, Seed: 1}) },
	"images": func() iter.Seq[corpus.Sample] { return corpus.Images(corpus.Options{Samples: 6_000, Seed: 1}) },
}

// packed keeps the data sets on disk for all benchmarks of a run.
var packed sync.Map

func pack(b testing.TB, name string) objstore.Store {
	type result struct{ store objstore.Store }
	r, _ := packed.LoadOrStore(name, sync.OnceValue(func() result {
		dir, err := os.MkdirTemp("", "shardtool-bench-*")
		if err != nil {
			b.Fatal(err)
		}
		benchDirs = append(benchDirs, dir)
		store, err := local.New(dir, local.Options{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		buildIn(b, store, adapt(corpora[name]()), testset.Options{ShardSize: 64 << 20})
		return result{store}
	}))
	return r.(func() result)().store
}

var benchDirs []string

// side is one of two things to compare: it goes over all bytes once and returns how many decoded
// bytes it saw.
type side func(b testing.TB) int64

// compare runs two sides in turn, so that both see the same machine, and reports ratios of speeds:
// of the medians, of the best rounds, and of the processor time they took, which other programs on
// the machine disturb least.
func compare(b *testing.B, got, base side) {
	var wall, cpu [2][]float64
	var size int64
	for b.Loop() {
		for i, run := range []side{got, base} {
			begin, used := time.Now(), processorTime()
			size = run(b)
			wall[i] = append(wall[i], time.Since(begin).Seconds())
			cpu[i] = append(cpu[i], processorTime()-used)
		}
	}
	for i := range wall {
		slices.Sort(wall[i])
		slices.Sort(cpu[i])
	}
	median := func(t []float64) float64 { return t[len(t)/2] }
	b.ReportMetric(median(wall[1])/median(wall[0]), "ratio")
	b.ReportMetric(wall[1][0]/wall[0][0], "best-ratio")
	b.ReportMetric(median(cpu[1])/median(cpu[0]), "cpu-ratio")
	b.ReportMetric(float64(size)/median(wall[0])/1e6, "MB/s")
	b.ReportMetric(float64(size)/median(wall[1])/1e6, "base-MB/s")
	b.ReportMetric(0, "ns/op")
}

// readSamples is Dataset.Samples over everything.
func readSamples(store objstore.Store, o Options) side {
	return func(b testing.TB) int64 {
		d, err := Open(context.Background(), store, o)
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		n := uint64(0)
		for _, err := range d.Samples(context.Background(), Range{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != d.NumSamples() {
			b.Fatalf("%d samples of %d", n, d.NumSamples())
		}
		return int64(d.Info().DecodedBytes)
	}
}

// frame is a frame in memory.
type frame struct {
	stored []byte
	row    format.Row
}

// frames loads all frames of a data set.
func frames(b testing.TB, store objstore.Store) (all []frame) {
	d := open(b, store, Options{})
	for i := range d.NumShards() {
		info, _ := d.Shard(context.Background(), i)
		rows, err := d.Rows(context.Background(), i)
		if err != nil {
			b.Fatal(err)
		}
		data := object(b, store, info.Name)
		for _, r := range rows {
			all = append(all, frame{data[:r.Stored], r})
			data = data[r.Stored:]
		}
	}
	return all
}

// decodeAll is the base: every frame through one decoder a goroutine, from memory, into one buffer
// each.
func decodeAll(all []frame, goroutines int) side {
	return func(b testing.TB) int64 {
		var next, size atomic.Int64
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				d := codec.NewDecoder(false)
				defer d.Close()
				buf := make([]byte, 0, 4<<20)
				for i := next.Add(1) - 1; int(i) < len(all); i = next.Add(1) - 1 {
					out, err := d.Decode(buf[:0], all[i].stored, all[i].row)
					if err != nil {
						b.Error(err)
						return
					}
					size.Add(int64(len(out)))
				}
			})
		}
		wg.Wait()
		return size.Load()
	}
}

// readCheck is the base of bytes that do not compress: pread and CRC-32C of every frame.
func readCheck(b testing.TB, store objstore.Store, goroutines int) side {
	d := open(b, store, Options{})
	type piece struct {
		file *os.File
		off  int64
		row  format.Row
	}
	var all []piece
	for i := range d.NumShards() {
		info, _ := d.Shard(context.Background(), i)
		rows, err := d.Rows(context.Background(), i)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Open(filepath.Join(store.String(), info.Name))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		off := int64(0)
		for _, r := range rows {
			all = append(all, piece{f, off, r})
			off += int64(r.Stored)
		}
	}
	return func(b testing.TB) int64 {
		var next, size atomic.Int64
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				buf := make([]byte, 4<<20)
				for i := next.Add(1) - 1; int(i) < len(all); i = next.Add(1) - 1 {
					p := all[i]
					if _, err := p.file.ReadAt(buf[:p.row.Stored], p.off); err != nil {
						b.Error(err)
						return
					}
					if err := codec.CheckFrame(buf[:p.row.Stored], p.row); err != nil {
						b.Error(err)
					}
					size.Add(int64(p.row.Decoded))
				}
			})
		}
		wg.Wait()
		return size.Load()
	}
}

// BenchmarkRatio holds the reader against what the machine can do. The goals are in the names.
func BenchmarkRatio(b *testing.B) {
	text, images := pack(b, "text"), pack(b, "images")
	inMemory := frames(b, text)
	b.Run("text/goroutines=1/goal=0.95", func(b *testing.B) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		compare(b, readSamples(text, Options{Workers: 1}), decodeAll(inMemory, 1))
	})
	b.Run("text/goroutines=2/goal=0.93", func(b *testing.B) {
		compare(b, readSamples(text, Options{Workers: 2}), decodeAll(inMemory, 2))
	})
	b.Run("text/two-to-one/goal=1.85", func(b *testing.B) {
		one := readSamples(text, Options{Workers: 1})
		compare(b, readSamples(text, Options{Workers: 2}), func(b testing.TB) int64 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			return one(b)
		})
	})
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("images/goroutines=%d/goal=0.75", n), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			compare(b, readSamples(images, Options{Workers: n}), readCheck(b, images, n))
		})
	}
}

// BenchmarkSamples measures a whole walk, per sample. Allocations are made once per walk, and round
// to 0.
func BenchmarkSamples(b *testing.B) {
	for name := range corpora {
		b.Run(name, func(b *testing.B) {
			d := open(b, pack(b, name), Options{})
			b.ReportAllocs()
			b.SetBytes(int64(d.Info().DecodedBytes / d.NumSamples()))
			b.ResetTimer()
			for left := b.N; left > 0; {
				for _, err := range d.Samples(context.Background(), Range{}) {
					if err != nil {
						b.Fatal(err)
					}
					if left--; left == 0 {
						break
					}
				}
			}
		})
	}
}

// BenchmarkGet is a random sample: a ranged read, CRC-32C and the decoding of a block of about 1
// MiB.
func BenchmarkGet(b *testing.B) {
	for name := range corpora {
		b.Run(name, func(b *testing.B) {
			d := open(b, pack(b, name), Options{})
			random := rand.New(rand.NewPCG(3, 4))
			var times []float64
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				if _, err := d.Get(context.Background(), random.Uint64N(d.NumSamples())); err != nil {
					b.Fatal(err)
				}
				times = append(times, float64(time.Since(begin).Microseconds()))
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "p50-µs")
			b.ReportMetric(times[len(times)*99/100], "p99-µs")
		})
	}
}

// BenchmarkVerify is a deep verification.
func BenchmarkVerify(b *testing.B) {
	for name := range corpora {
		b.Run(name, func(b *testing.B) {
			store := pack(b, name)
			d := open(b, store, Options{})
			b.SetBytes(int64(d.Info().DecodedBytes))
			for b.Loop() {
				r, err := check.Verify(context.Background(), d.Store(), check.Options{Deep: true})
				if err != nil || !r.OK() {
					b.Fatal(err, r.Faults)
				}
			}
		})
	}
}
