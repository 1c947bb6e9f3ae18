package local

import (
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

func BenchmarkReadAt(b *testing.B) {
	store := newStore(b, b.TempDir())
	const size = 64 << 20
	if _, err := objstore.Put(b.Context(), store, "object", make([]byte, size), objstore.Condition{}); err != nil {
		b.Fatal(err)
	}
	object, err := store.Open(b.Context(), "object")
	if err != nil {
		b.Fatal(err)
	}
	defer object.Close()
	for _, length := range []int{256 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("length=%dKiB", length>>10), func(b *testing.B) {
			ctx, p, off := b.Context(), make([]byte, length), int64(0)
			b.SetBytes(int64(length))
			b.ReportAllocs()
			for b.Loop() {
				if err := object.ReadAt(ctx, p, off); err != nil {
					b.Fatal(err)
				}
				// 11 shares no factor with the 63 and the 255 steps of this ring, so all of the object is
				// visited: a short cycle would measure the processor's cache.
				off = (off + 11*int64(length)) % (size - int64(length))
			}
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 256 << 20} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			store := newStore(b, b.TempDir())
			piece := make([]byte, min(size, 1<<20))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				upload, err := store.Create(b.Context(), "object", objstore.Condition{})
				if err != nil {
					b.Fatal(err)
				}
				for range size / len(piece) {
					if _, err := upload.Write(piece); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := upload.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
