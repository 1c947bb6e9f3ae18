package tar

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
)

// TestBomb: a small archive that decompresses to one huge member costs no memory, and the samples
// around it are there.
func TestBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	const size = 128 << 20
	packed := map[string]func(io.Writer) (io.WriteCloser, error){
		"gz":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) },
		"zst": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"xz":  func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
		"lz4": func(w io.Writer) (io.WriteCloser, error) { return lz4.NewWriter(w), nil },
	}
	coded := map[string][]byte{}
	for coding, packer := range packed {
		var b bytes.Buffer
		z, err := packer(&b)
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
		member("a.txt", 10)
		member("b.bin", size)
		member("c.txt", 10)
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		coded[coding] = b.Bytes()
	}
	var err error
	if coded["bz2"], err = base64.StdEncoding.DecodeString(bzip2Bomb); err != nil {
		t.Fatal(err)
	}
	for coding, content := range coded {
		t.Run(coding, func(t *testing.T) {
			if len(content) > size/100 {
				t.Fatalf("%d bytes: it is no bomb", len(content))
			}
			path := filepath.Join(t.TempDir(), "bomb.tar."+coding)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
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
		})
	}
}

// bzip2Bomb is the same archive as Python's tarfile and bz2 make it: no encoder is among the
// libraries here.
const bzip2Bomb = "QlpoOTFBWSZTWQsqslsFfj5bgMqAQAF1gAAIcCEeQAIIIACShKSbTU00GmIPQKVKNDINAA9eM35hhVVKqTIoFVSavTVnaa8m" +
	"3RmoFVSYGHnzqyLJgng0C0BIpTleC6MQYVYqFbD469qfjuM5tuIAqqT+YoKyTKayHBPFvgK/HIABgAAAEEAAYQCajIVAS1IV" +
	"AS5igrJMprKV/R96AAActwGVCIAC6wAAENAAPIAAEEAA4KADEaaaNAqUSHonpqGmm1M/tqiUtUkSSEEdpCAiCPPONWL7WEBE" +
	"EUKOcaJpRHFYr49X4vxa1avnvnrOes21SARBH8XckU4UJB6R4NvA"

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
