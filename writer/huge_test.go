package writer_test

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// zeros is a payload of any size that takes no memory.
type zeros struct{ size int64 }

func (z zeros) ReadInto(_ context.Context, p []byte) error {
	clear(p)
	return nil
}

func (z zeros) Open(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(io.LimitReader(zeroReader{}, z.size)), nil
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestEightGiB packs a sample of more than 8 GiB, the most a tar header can say in octal, behind
// others in one block. It must not be held in memory.
func TestEightGiB(t *testing.T) {
	if testing.Short() {
		t.Skip("8 GiB through the goroutines that TestLargeSampleFails has: make test runs it without the race detector")
	}
	const size = 8<<30 + 13
	st := mem.New()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(16<<20 + 32<<20)) // as the command does
	peak := watchHeap(t)
	w := newWriter(t, st, writer.Options{Memory: 16 << 20, Level: codec.LevelFastest})
	for _, s := range []writer.Sample{
		{Key: "a", Fields: []writer.Field{{Name: "txt", Data: []byte("before")}}},
		{Key: "b", Fields: []writer.Field{{Name: "zero", Payload: zeros{size}, Size: size}, {Name: "cls", Data: []byte("7")}}},
		{Key: "c", Fields: []writer.Field{{Name: "txt", Data: []byte("behind")}}},
	} {
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The budget cannot hold for one frame being read, its result, and one on its way.
	if most := peak(); most > 4*format.MaxFrame+64<<20 {
		t.Errorf("peak of the heap is %d MiB", most>>20)
	}
	all := objects(t, st)
	checkHuge(t, all["data-000000.tar.zst"], size)
	if _, ok := all["data-000001.tar.zst"]; !ok {
		t.Fatal("no shard for what follows the large sample")
	}
}

// checkHuge looks at the ends of the large sample: decoding all of it would take longer than
// packing it.
func checkHuge(t *testing.T, shard []byte, size int64) {
	tail, _, err := metadata.ParseTail(shard, int64(len(shard)))
	if err != nil {
		t.Fatal(err)
	}
	off, n := tail.Cold()
	ix, err := tail.DecodeCold(shard[off : off+n])
	if err != nil {
		t.Fatal(err)
	}
	if ix.Keys.Len() != 2 || ix.Fields[2] != "zero" || ix.Sizes[2].At(0) != uint64(size) {
		t.Fatalf("%q %q %v", ix.Keys.Slice(), ix.Fields, ix.Sizes)
	}
	dec := codec.NewDecoder(true)
	defer dec.Close()
	check := metadata.NewBlockChecker(ix.Cursors([]int{0})[0], 2)
	zero := make([]byte, 0, format.MaxFrame+16)
	pos := 0
	for i, r := range ix.Rows {
		stored := shard[pos : pos+int(r.Stored)]
		pos += int(r.Stored)
		// Frames in the middle are all alike: one of them is decoded.
		if i < 2 || i > len(ix.Rows)-3 || r.CRC != ix.Rows[i-1].CRC {
			if err := codec.CheckFrame(stored, r); err != nil {
				t.Fatal(err)
			}
			if zero, err = dec.Decode(zero[:0], stored, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := check.Write(zero); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	if err := check.End(); err != nil {
		t.Fatal(err)
	}
}

// TestLargeSampleFails: a payload of several frames that cannot be opened is left out like any
// other; one that is cut half way stops the pack with an error that has what to do.
func TestLargeSampleFails(t *testing.T) {
	make3 := func() *synth {
		s := cutItems(2048, 40<<20, 2048)
		s.items[1].inline = "sorts before the large field"
		return s
	}
	for _, skip := range []bool{false, true} {
		src := make3()
		src.items[1].open = errRead
		st := mem.New()
		res, err := writer.Pack(t.Context(), st, src, writer.Options{Faults: writer.Faults{Skip: skip}, Plain: true})
		var se *writer.SampleError
		if !skip {
			if !errors.Is(err, errRead) || !errors.As(err, &se) || se.Key != src.items[1].key {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || res.Skipped != 1 || res.Samples != 2 {
			t.Fatalf("%+v, %v", res, err)
		}
		checkSet(t, mustLoad(t, st), func(it *item) bool { return it.open == nil }, src)
	}
	src := make3()
	src.items[1].read = errRead
	st := mem.New()
	_, err := writer.Pack(t.Context(), st, src, writer.Options{Faults: writer.Faults{Skip: true}, Plain: true})
	var se *writer.SampleError
	if !errors.Is(err, errRead) || !errors.As(err, &se) || se.Key != src.items[1].key {
		t.Fatal(err)
	}
	if _, err := readback.Load(t.Context(), st); err == nil {
		t.Fatal("something was published")
	}
}

// TestLargePayloadOfOtherSize: streams that give fewer or more bytes than they said.
func TestLargePayloadOfOtherSize(t *testing.T) {
	const said = 20 << 20
	for _, size := range []int64{0, said - 1, said + 1, said + 30<<20} {
		w, err := writer.New(t.Context(), mem.New(), writer.Options{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Write(t.Context(), writer.Sample{Key: "k", Fields: []writer.Field{{Payload: zeros{size}, Size: said}}})
		var se *writer.SampleError
		if _, err := w.Close(t.Context()); !errors.As(err, &se) || se.Key != "k" {
			t.Fatalf("%d bytes instead of %d: %v", size, said, err)
		}
	}
}

var _ objstore.Store = (*mem.Store)(nil)
