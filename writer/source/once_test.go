package source_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/shardtool/shardtool/writer/source"
)

// sequential is what sources call on a stream.
type sequential interface {
	ReadSome(ctx context.Context, p []byte, off int64) (int, error)
}

func openOnce(t *testing.T, r io.Reader, name string) (source.Input, sequential) {
	t.Helper()
	in, err := source.ReaderInput(t.Context(), r, name)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := in.Store.Open(t.Context(), in.Name)
	if err != nil {
		t.Fatal(err)
	}
	return in, obj.(sequential)
}

// The beginning of a stream can be read several times, the rest once.
func TestReaderInput(t *testing.T) {
	const size = 80 << 20 // larger than what is kept
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i / 1000)
	}
	in, obj := openOnce(t, bytes.NewReader(all), "stdin.csv")
	if !in.Once() || in.Name != "stdin.csv" {
		t.Errorf("Once %v, Name %q", in.Once(), in.Name)
	}
	buf := make([]byte, 300_000)
	for range 2 { // a survey, then the reading
		off := int64(0)
		for off < 1<<20 {
			n, err := obj.ReadSome(t.Context(), buf, off)
			if err != nil || n == 0 || !bytes.Equal(buf[:n], all[off:off+int64(n)]) {
				t.Fatalf("%d bytes at %d, %v", n, off, err)
			}
			off += int64(n)
		}
	}
	off := int64(1 << 20)
	for {
		n, err := obj.ReadSome(t.Context(), buf, off)
		if !bytes.Equal(buf[:n], all[off:off+int64(n)]) {
			t.Fatalf("other bytes at %d", off)
		}
		if off += int64(n); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if off != size {
		t.Errorf("%d bytes, want %d", off, size)
	}
	if _, err := obj.ReadSome(t.Context(), buf, 0); err == nil {
		t.Error("the beginning can be read after it was dropped")
	}
}

func TestReaderInputCompressed(t *testing.T) {
	for head, want := range map[string]string{"\x1f\x8b\x08\x00": "x.tar.gz", "\x28\xb5\x2f\xfd": "x.tar.zst", "a": "x.tar", "": "x.tar"} {
		if in, _ := openOnce(t, bytes.NewReader([]byte(head)), "x.tar"); in.Name != want {
			t.Errorf("%q: %s, want %s", head, in.Name, want)
		}
	}
}

// A read of a silent stream ends with its context.
func TestReaderInputCancelled(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.ReaderInput(ctx, r, "stdin.tar"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestSpooledInput(t *testing.T) {
	dir := t.TempDir()
	in, remove, err := source.SpooledInput(t.Context(), bytes.NewReader([]byte("PAR1")), "stdin.parquet", dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := in.Store.Stat(t.Context(), in.Name)
	if err != nil || info.Size != 4 || in.Path != "stdin.parquet" || in.Once() {
		t.Errorf("%+v %+v %v", in, info, err)
	}
	remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w := io.Pipe()
	defer w.Close()
	if _, _, err := source.SpooledInput(ctx, r, "x", dir); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
