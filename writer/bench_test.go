package writer_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// The ratios below are of times taken by turns in one run, so that a busy machine spoils both: what
// the same cores need for the least work there is to do, over what the Writer needs.

// parallel calls f for 0 to n-1 on all cores.
func parallel(n int, f func(worker, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(w, i)
			}
		})
	}
	wg.Wait()
}

// ratio times least and whole by turns.
func ratio(b *testing.B, bytes int64, least, whole func()) {
	b.SetBytes(bytes)
	var tl, tw time.Duration
	for b.Loop() {
		begin := time.Now()
		whole()
		tw += time.Since(begin)
		b.StopTimer()
		begin = time.Now()
		least()
		tl += time.Since(begin)
		b.StartTimer()
	}
	b.ReportMetric(float64(tl)/float64(tw), "ratio")
}

// BenchmarkText writes 3 KB samples that are in memory. The least is to compress and hash their
// blocks.
func BenchmarkText(b *testing.B) {
	const n, passes = 20_000, 4 // over the same data with other keys: the start of a Writer is not what is measured
	var samples []writer.Sample
	var blocks [][]byte
	var layout tarblock.Builder
	total := int64(0)
	for s := range corpus.Text(corpus.Options{Samples: n, Seed: 1}) {
		data := slices.Clone(s.Fields[0].Data)
		total += int64(len(data))
		samples = append(samples, writer.Sample{Key: s.Key, Fields: []writer.Field{{Name: "txt", Data: data}}})
		copy(layout.Buf[layout.Member(s.Key+".txt", len(data)):], data)
		if len(layout.Buf) >= 1<<20 {
			blocks = append(blocks, slices.Clone(layout.Buf))
			layout.Reset()
		}
	}
	keys := make([]string, passes*n)
	for i := range keys {
		keys[i] = fmt.Sprint(i/n, "/", samples[i%n].Key)
	}
	for _, level := range []codec.Level{codec.LevelFastest, codec.LevelDefault} {
		b.Run("level="+level.String(), func(b *testing.B) {
			cores := runtime.GOMAXPROCS(0)
			encoders, out := make([]*codec.Encoder, cores), make([][]byte, cores)
			for i := range encoders {
				encoders[i] = codec.NewEncoder(level)
				defer encoders[i].Close()
			}
			ratio(b, passes*total, func() {
				parallel(passes*len(blocks), func(w, i int) {
					block := blocks[i%len(blocks)]
					sha256.Sum256(block)
					out[w], _, _ = encoders[w].AppendFrame(out[w][:0], block, nil, nil)
				})
			}, func() {
				w, err := writer.New(context.Background(), newDiscard(), writer.Options{Level: level})
				for i := range passes * n {
					s := samples[i%n]
					s.Key = keys[i]
					if err == nil {
						err = w.Write(context.Background(), s)
					}
				}
				if err == nil {
					_, err = w.Close(context.Background())
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkFiles packs files in the page cache. The least is to read and hash them; of text, to
// compress it, too, in blocks.
func BenchmarkFiles(b *testing.B) {
	for _, c := range []struct {
		kind string
		size int
		n    int
	}{{"images", 100_000, 1000}, {"text", 3000, 10_000}, {"text", 64 << 10, 800}} {
		b.Run(fmt.Sprintf("kind=%s/size=%d", c.kind, c.size), func(b *testing.B) {
			dir := b.TempDir()
			opt := corpus.Options{Samples: c.n, MeanSize: c.size, Seed: 1}
			samples := corpus.Images(opt)
			if c.kind == "text" {
				samples = corpus.Text(opt)
			}
			_, total, err := corpus.WriteFiles(dir, samples)
			if err != nil {
				b.Fatal(err)
			}
			paths, err := filepath.Glob(dir + "/*/*")
			if err != nil || len(paths) != c.n {
				b.Fatal(len(paths), err)
			}
			list := 0.0
			ratio(b, total, func() { readAndHash(b, paths, c.kind == "text") }, func() {
				begin := time.Now()
				src, err := source.NewFiles(context.Background(), []string{dir}, source.FilesOptions{})
				if err != nil {
					b.Fatal(err)
				}
				defer src.Close()
				list += time.Since(begin).Seconds()
				if _, err := writer.Pack(context.Background(), newDiscard(), src, writer.Options{}); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(list*1e9/float64(b.N)/float64(c.n), "list-ns/file")
		})
	}
}

func readAndHash(b *testing.B, paths []string, compress bool) {
	cores := runtime.GOMAXPROCS(0)
	bufs, blocks, outs := make([][]byte, cores), make([][]byte, cores), make([][]byte, cores)
	encoders := make([]*codec.Encoder, cores)
	for i := range encoders {
		encoders[i] = codec.NewEncoder(codec.LevelDefault)
		defer encoders[i].Close()
	}
	parallel(len(paths), func(w, i int) {
		f, err := os.Open(paths[i])
		if err != nil {
			b.Error(err)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			b.Error(err)
			return
		}
		bufs[w] = slices.Grow(bufs[w][:0], int(info.Size()))[:info.Size()]
		if _, err := io.ReadFull(f, bufs[w]); err != nil {
			b.Error(err)
		}
		sha256.Sum256(bufs[w])
		if !compress {
			return
		}
		if blocks[w] = append(blocks[w], bufs[w]...); len(blocks[w]) >= 1<<20 {
			outs[w], _, _ = encoders[w].AppendFrame(outs[w][:0], blocks[w], nil, nil)
			blocks[w] = blocks[w][:0]
		}
	})
}

// BenchmarkStackedRows packs rows of 64 bytes.
func BenchmarkStackedRows(b *testing.B) {
	data := append(npy.AppendHeader(nil, "<u4", 16), make([]byte, 64)...)
	fields := []writer.Field{{Name: "x.npy", Data: data}}
	keys := make([]string, 1<<18)
	for i := range keys {
		keys[i] = numberedKey(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		w, err := writer.New(b.Context(), mem.New(), writer.Options{Layout: writer.LayoutStacked, Plain: true})
		if err != nil {
			b.Fatal(err)
		}
		for i, key := range keys {
			binary.LittleEndian.PutUint64(data[len(data)-8:], uint64(i))
			if err := w.Write(b.Context(), writer.Sample{Key: key, Fields: fields}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/row")
}
