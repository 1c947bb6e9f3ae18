package tar

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
)

// TestBomb: a small archive that decompresses to one huge member costs no memory, and the samples
// around it are there.
func TestBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	path := filepath.Join(t.TempDir(), "bomb.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	member := func(name string, size int64) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, size); err != nil {
			t.Fatal(err)
		}
	}
	const size = 512 << 20
	member("a.txt", 10)
	member("b.bin", size)
	member("c.txt", 10)
	for _, c := range []io.Closer{w, z, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, bad, err := rest(t, open(t, Options{MemberMemory: 16 << 20}, path))
	runtime.ReadMemStats(&after)
	var one *writer.SampleError
	if err != nil || len(all) != 2 || len(bad) != 1 || !errors.As(bad[0], &one) || one.Key != "b" || !errors.Is(one, format.ErrTooLarge) {
		t.Fatalf("%q, %v, %v", all, bad, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("%d MiB were allocated", got>>20)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
