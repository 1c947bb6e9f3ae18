package reader_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

var plainRows = writer.Options{Layout: writer.LayoutStacked, Plain: true}

// wideFolder packs wide samples into a folder and opens them.
func wideFolder(t *testing.T, dir string, n int, opt writer.Options) *reader.Dataset {
	t.Helper()
	st, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	packWide(t, st, n, false, opt)
	ds, err := reader.Open(t.Context(), st, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// rightBatch checks what a batch of wide samples, or of their rows, holds.
func rightBatch(t *testing.T, b *reader.Batch) {
	t.Helper()
	check := func(number uint64, x, y []byte) {
		if got := binary.LittleEndian.Uint64(y); got != number {
			t.Fatalf("y of sample %d is that of %d", number, got)
		}
		for k := range 300 {
			if got := binary.LittleEndian.Uint16(x[2*k:]); got != uint16(int(number)*k) {
				t.Fatalf("x of sample %d has %d at place %d", number, got, k)
			}
		}
	}
	if len(b.Samples) > 0 {
		for i := range b.Samples {
			s := &b.Samples[i]
			check(s.Number, last(s.Fields[0].Data, 600), last(s.Fields[1].Data, 8))
		}
		return
	}
	x, y := make([]byte, 600*b.Len()), make([]byte, 8*b.Len())
	if err := errors.Join(b.CopyRows(x, "x.npy"), b.CopyRows(y, "y.npy")); err != nil {
		t.Fatal(err)
	}
	for i := range b.Len() {
		check(b.Ref(i).Number, x[600*i:][:600], y[8*i:])
	}
}

func wideStream(t *testing.T, ds *reader.Dataset, rows bool) *reader.Stream {
	t.Helper()
	s, err := ds.Stream(t.Context(), reader.StreamOptions{
		GlobalBatch: 50, Shuffle: true, Seed: 3, Epochs: 20, Rows: rows,
		Order:  reader.OrderOptions{ShuffleMemory: 128 << 10},
		Tuning: reader.Tuning{Workers: 2, Memory: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// writeThroughMapping maps a file, touches its pages and then puts the bytes of its first half in
// place of its second half. On tmpfs that changes no time of the file.
func writeThroughMapping(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(mem) // reads each page before it is written
	copy(mem[len(mem)/2:], before)
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
}

// TestWrittenThroughMapping has another program write to shards on tmpfs through a mapping, which
// no time of the files shows. Batches are right, the one in hand too, until an error names the
// shard.
func TestWrittenThroughMapping(t *testing.T) {
	for name, c := range map[string]struct {
		opt  writer.Options
		rows bool
	}{
		"rows":                  {plainRows, true},
		"samples of rows":       {plainRows, false},
		"samples of plain tars": {writer.Options{Plain: true}, false},
		"compressed samples":    {writer.Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/dev/shm", "shardtool-test-")
			if err != nil {
				t.Skip("there is no tmpfs at /dev/shm: ", err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			ds := wideFolder(t, dir, 3000, c.opt)
			time.Sleep(100 * time.Millisecond) // what changed a moment ago might be read in another way
			s := wideStream(t, ds, c.rows)
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			shards, err := filepath.Glob(filepath.Join(dir, "*.tar*"))
			if err != nil || len(shards) < 3 {
				t.Fatal(shards, err)
			}
			for _, path := range shards {
				writeThroughMapping(t, path)
			}
			for err == nil {
				rightBatch(t, b)
				b, err = s.Next(t.Context())
			}
			var at *format.PosError
			if !errors.Is(err, format.ErrCorrupt) || !errors.As(err, &at) || at.Shard == "" || at.Block < 0 {
				t.Errorf("not an error of a block that was written over: %v", err)
			}
		})
	}
}

// TestChangedWhileStreamed has another program write to shards and cut them all the time, at
// random. A batch is right or an error, which comes in the end.
func TestChangedWhileStreamed(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	batches := 0
	for trial := range 12 {
		dir := t.TempDir()
		ds := wideFolder(t, dir, 3000, plainRows)
		s := wideStream(t, ds, trial%2 == 1)
		stop, done := make(chan struct{}), make(chan struct{})
		wait := time.Duration(random.IntN(3000)) * time.Microsecond
		go func() {
			defer close(done)
			for shard := 0; ; shard = (shard + 1) % 10 {
				select {
				case <-stop:
					return
				case <-time.After(wait):
				}
				path := filepath.Join(dir, "data-00000"+string(rune('0'+shard))+".tar")
				if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
					if trial%3 == 0 {
						_ = f.Truncate(9000)
					} else if info, err := f.Stat(); err == nil {
						_, _ = f.WriteAt(make([]byte, info.Size()), 0)
					}
					f.Close()
				}
			}
		}()
		for {
			b, err := s.Next(t.Context())
			if errors.Is(err, objstore.ErrChanged) || errors.Is(err, format.ErrCorrupt) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rightBatch(t, b)
			batches++
		}
		close(stop)
		<-done
		s.Close()
	}
	if batches == 0 {
		t.Error("every first batch was an error: nothing was tried")
	}
}
