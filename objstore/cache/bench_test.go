package cache

import (
	"os"
	"testing"
)

// BenchmarkRead reads one cached MiB, and the same file by os.ReadFile.
func BenchmarkRead(b *testing.B) {
	const size = 1 << 20
	dir := b.TempDir()
	source, data := dataset(b, "far:", 1, size)
	object := open(b, newCache(b, dir, 16<<20).Wrap(source), "shard", "hash")
	expect(b, object, 0, size, data)
	b.Run("reader=cache", func(b *testing.B) {
		p, ctx := make([]byte, size), b.Context()
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			if err := object.ReadAt(ctx, p, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	path := pieces(b, dir)[0]
	b.Run("reader=os.ReadFile", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := os.ReadFile(path); err != nil {
				b.Fatal(err)
			}
		}
	})
	if n := source.reads.Load(); n != 1 {
		b.Fatalf("%d reads of the source", n)
	}
}

// BenchmarkMiss reads one MiB that is not cached and finds no room, from a source in memory. It
// measures the overhead of the cache.
func BenchmarkMiss(b *testing.B) {
	const size = 1 << 20
	source, _ := dataset(b, "far:", 1, size)
	object := open(b, newCache(b, b.TempDir(), 100).Wrap(source), "shard", "hash")
	p, ctx := make([]byte, size), b.Context()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if err := object.ReadAt(ctx, p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeep writes one MiB to the folder repeatedly.
func BenchmarkKeep(b *testing.B) {
	const size = 1 << 20
	source, _ := dataset(b, "far:", 1, size)
	object := open(b, newCache(b, b.TempDir(), 16<<20).Wrap(source), "shard", "hash")
	p, ctx := make([]byte, size), b.Context()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		forget(ctx, object, 0, size)
		if err := object.ReadAt(ctx, p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
