package reader_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// wideSet packs n samples: x.npy has 300 numbers made from the sample's number, y.npy is that
// number.
func wideSet(t *testing.T, n int, stored bool, opt writer.Options) *mem.Store {
	t.Helper()
	st := mem.New()
	packWide(t, st, n, stored, opt)
	return st
}

// packWide is wideSet in a store.
func packWide(t *testing.T, st objstore.Store, n int, stored bool, opt writer.Options) {
	t.Helper()
	opt.BlockSize, opt.ShardSize, opt.Workers = 8<<10, 100<<10, 2
	w, err := writer.New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		x := npy.AppendHeader(nil, "<u2", 300)
		for k := range 300 {
			x = binary.LittleEndian.AppendUint16(x, uint16(i*k))
		}
		y := binary.LittleEndian.AppendUint64(npy.AppendHeader[int](nil, "<i8"), uint64(i))
		key := fmt.Sprintf("%06d", i)
		if stored {
			key = fmt.Sprintf("%x/%d", i*7919%4093, i)
		}
		if err := w.Write(t.Context(), writer.Sample{Key: key, Fields: []writer.Field{{Name: "x.npy", Data: x}, {Name: "y.npy", Data: y}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var stacked = writer.Options{Layout: writer.LayoutStacked}

// sameRows compares a batch of rows with one of samples, which must be the same.
func sameRows(t *testing.T, got, want *reader.Batch) {
	t.Helper()
	if got.Epoch != want.Epoch || got.Position != want.Position || got.NextPosition != want.NextPosition || got.First != want.First ||
		got.Len() != want.Len() || got.Holes != want.Holes || len(got.Samples) != 0 || got.SkippedSamples() != want.SkippedSamples() {
		t.Fatalf("a batch of %d rows at %d/%d with %d holes, want %d at %d/%d with %d", got.Len(), got.Epoch, got.Position, got.Holes, want.Len(), want.Epoch, want.Position, want.Holes)
	}
	x, wide := got.Rows("x.npy")
	y, narrow := got.Rows("y.npy")
	if wide != 600 || narrow != 8 || len(x) != 600*got.Len() || len(y) != 8*got.Len() {
		t.Fatalf("%d rows: %d and %d bytes in rows of %d and %d", got.Len(), len(x), len(y), wide, narrow)
	}
	mine := make([]byte, len(x))
	if err := got.CopyRows(mine, "x.npy"); err != nil || !bytes.Equal(mine, x) || !errors.Is(got.CopyRows(nil, "z"), reader.ErrFields) {
		t.Fatal("CopyRows and Rows differ")
	}
	for i := range want.Samples {
		s, r := &want.Samples[i], got.Ref(i)
		if r.Number != s.Number || r.Padding != s.Padding || r.Epoch != s.Epoch || r.Draw != s.Draw || int(r.Source) != s.SourceNumber() || got.Place(i) != want.Place(i) {
			t.Fatalf("row %d is %+v at place %d, want %d at %d", i, r, got.Place(i), s.Number, want.Place(i))
		}
		if key := got.AppendKey(nil, i); !bytes.Equal(key, s.Key) {
			t.Fatalf("row %d has the key %q, want %q", i, key, s.Key)
		}
		if got.Seed(i) != s.Seed() {
			t.Fatalf("row %d has another seed", i)
		}
		wantX, wantY := last(s.Fields[0].Data, 600), last(s.Fields[1].Data, 8)
		if !bytes.Equal(x[i*600:][:600], wantX) || !bytes.Equal(y[i*8:][:8], wantY) {
			t.Fatalf("row %d of sample %d differs from the sample", i, s.Number)
		}
	}
}

// last returns the data of an NPY file, without its header.
func last(file []byte, n int) []byte { return file[len(file)-n:] }

func mustStream(t *testing.T, d *reader.Dataset, o reader.StreamOptions, rows bool) *reader.Stream {
	t.Helper()
	o.Rows = rows
	s, err := d.Stream(t.Context(), o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// both reads a stream of rows and one of samples to their ends, and returns how many batches there
// were.
func both(t *testing.T, rows, samples *reader.Stream) (n int) {
	t.Helper()
	for {
		a, err := rows.Next(t.Context())
		b, errB := samples.Next(t.Context())
		if errors.Is(err, io.EOF) && errors.Is(errB, io.EOF) {
			if x, y := rows.Stats(), samples.Stats(); x.Samples != y.Samples || x.Bytes != y.Bytes || x.Skipped != y.Skipped {
				t.Errorf("statistics %+v, those of samples %+v", x, y)
			}
			return n
		}
		if err != nil || errB != nil {
			t.Fatalf("batch %d: %v, of samples %v", n, err, errB)
		}
		sameRows(t, a, b)
		n++
	}
}

var rowOrders = map[string]reader.StreamOptions{
	"in order":         {GlobalBatch: 100},
	"shuffled":         {Shuffle: true, Seed: 1, GlobalBatch: 64},
	"padded":           {Shuffle: true, GlobalBatch: 300, World: 3, Rank: 2, Tail: "pad"},
	"copied":           {Shuffle: true, GlobalBatch: 3000, Tail: "pad", Order: reader.OrderOptions{Lanes: 40, Delay: 3}, Tuning: reader.Tuning{Memory: 1 << 20}},
	"large, in memory": {Shuffle: true, GlobalBatch: 3500},
}

// TestRows compares batches of rows with those of samples: in order and shuffled, of ranks, padded,
// copied piece by piece, and by several goroutines.
func TestRows(t *testing.T) {
	const n = 4000
	for _, stored := range []bool{false, true} {
		d := openSet(t, wideSet(t, n, stored, stacked))
		for name, o := range rowOrders {
			t.Run(fmt.Sprintf("%s/stored=%v", name, stored), func(t *testing.T) {
				o.Epochs = 2
				s := mustStream(t, d, o, true)
				if both(t, s, mustStream(t, d, o, false)) == 0 {
					t.Error("no batch")
				}
				if f := s.Info().Rows; len(f) != 2 || f[0].Name != "x.npy" || f[0].DType != "<u2" || f[0].Stride != 600 || f[1].Stride != 8 {
					t.Errorf("%+v", f)
				}
			})
		}
	}
}

// TestRowsIf lets a function choose between rows and samples: it gets the fields of the rows, and
// is not called where the data has none.
func TestRowsIf(t *testing.T) {
	wide := openSet(t, wideSet(t, 100, false, stacked))
	ordinary := openSet(t, wideSet(t, 100, false, writer.Options{}))
	for _, c := range []struct {
		of     *reader.Dataset
		choice bool
		rows   int
	}{{wide, true, 2}, {wide, false, 0}, {ordinary, true, 0}} {
		o := reader.StreamOptions{GlobalBatch: 100}
		asked := 0
		o.Tuning.RowsIf = func(fields []reader.RowField) bool {
			asked = len(fields)
			return c.choice
		}
		s := mustStream(t, c.of, o, true)
		b, err := s.Next(t.Context())
		if err != nil || b.Len() != 100 || len(s.Info().Rows) != c.rows || (b.Samples == nil) != (c.rows > 0) {
			t.Errorf("%+v: %d samples, rows %+v, %v", c, len(b.Samples), s.Info().Rows, err)
		}
		if (asked > 0) != (c.of == wide) {
			t.Errorf("%+v: asked about %d fields", c, asked)
		}
	}
}

// TestRowsHoles leaves out removed samples and damaged ones: rows and samples lack the
// same.
func TestRowsHoles(t *testing.T) {
	const n = 4000
	for name, o := range rowOrders {
		store := wideSet(t, n, true, stacked)
		removed := []uint64{0, 5, 6, 7, 1000, n - 1}
		d, err := reader.Open(t.Context(), store, reader.Options{Removed: removed})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		shard, err := d.Shard(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		turnBit(t, store, shard.Name, 3000)
		alone := o.World == 0 // else the block may be another rank's
		o.Epochs, o.Faults.SkipCorrupt, o.Faults.MaxSkippedShare = 2, true, 0.5
		s := mustStream(t, d, o, true)
		both(t, s, mustStream(t, d, o, false))
		if list := s.Skipped(); alone && (len(list) != 1 || list[0].Shard != shard.Name || list[0].Samples == 0 || s.Stats().Rereads == 0) {
			t.Errorf("%s: skipped %+v after %d second reads", name, list, s.Stats().Rereads)
		}
		if !alone {
			continue
		}
		o.Faults.SkipCorrupt, o.Faults.MaxSkippedShare = false, 0
		s = mustStream(t, d, o, true)
		for err = nil; err == nil; {
			_, err = s.Next(t.Context())
		}
		var at *format.PosError
		if !errors.Is(err, format.ErrCorrupt) || !errors.As(err, &at) || at.Shard != shard.Name || at.Block < 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func turnBit(t *testing.T, store *mem.Store, name string, at int) {
	t.Helper()
	data, _, err := objstore.ReadAll(t.Context(), store, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	data[at] ^= 1
	if _, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestRowsContinue stops and continues at random on other numbers of ranks, with rows and with
// samples in turn: every sample is delivered once an epoch, with its bytes.
func TestRowsContinue(t *testing.T) {
	const n, epochs = 3000, 2
	d := openSet(t, wideSet(t, n, false, stacked))
	random := rand.New(rand.NewPCG(1, 2))
	o := reader.StreamOptions{Shuffle: true, Seed: 5, GlobalBatch: 60, Epochs: epochs, Tail: "wrap"}
	var cp *reader.Checkpoint
	seen, leg := map[uint64]int{}, 0
	for ended := false; !ended; leg++ {
		o.World, o.Checkpoint = 1+random.IntN(4), cp
		most := 1 + random.IntN(15)
		for o.Rank = range o.World {
			s := mustStream(t, d, o, leg%2 == 1)
			for range most {
				b, err := s.Next(t.Context())
				if ended = errors.Is(err, io.EOF); ended {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				count(t, b, seen)
				if next, err := b.Checkpoint(); err != nil {
					t.Fatal(err)
				} else {
					cp = &next
				}
			}
			s.Close()
		}
	}
	for i := range uint64(n) {
		if seen[i] != epochs {
			t.Fatalf("sample %d came %d times", i, seen[i])
		}
	}
}

// count counts the samples of a batch after a comparison of their bytes with their numbers.
func count(t *testing.T, b *reader.Batch, seen map[uint64]int) {
	t.Helper()
	y, _ := b.Rows("y.npy")
	for i := range b.Len() {
		var number, have uint64
		if b.Samples == nil {
			number, have = b.Ref(i).Number, binary.LittleEndian.Uint64(y[8*i:])
		} else {
			number, have = b.Samples[i].Number, binary.LittleEndian.Uint64(last(b.Samples[i].Fields[1].Data, 8))
		}
		if number != have {
			t.Fatalf("sample %d has the row of %d", number, have)
		}
		seen[number]++
	}
}

// TestRowsHeld holds batches while others come, and copies the rows of all at the end, from several
// goroutines.
func TestRowsHeld(t *testing.T) {
	const hold = 6
	d := openSet(t, wideSet(t, 3000, false, stacked))
	o := reader.StreamOptions{Shuffle: true, GlobalBatch: 50, Epochs: 1, Hold: hold}
	s := mustStream(t, d, o, true)
	var held []*reader.Batch
	seen := map[uint64]int{}
	release := func() {
		var wg sync.WaitGroup
		for _, b := range held {
			wg.Go(func() { b.Rows("y.npy") })
		}
		wg.Wait()
		for _, b := range held {
			count(t, b, seen)
			b.Release()
		}
		held = nil
	}
	for {
		b, err := s.Next(t.Context())
		if errors.Is(err, reader.ErrHeld) && len(held) == hold {
			release()
			continue
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	release()
	if len(seen) != 3000 {
		t.Errorf("%d samples of 3000", len(seen))
	}
}

// TestRowsRefused names what cannot be delivered as rows.
func TestRowsRefused(t *testing.T) {
	d := openSet(t, wideSet(t, 100, false, writer.Options{}))
	s := openSet(t, wideSet(t, 100, false, stacked))
	for _, c := range []struct {
		d    *reader.Dataset
		o    reader.StreamOptions
		is   error
		text string
	}{
		{d, reader.StreamOptions{Rows: true}, reader.ErrFields, "shard data-000000.tar.zst is not stacked"},
		{s, reader.StreamOptions{Rows: true, Map: func(context.Context, *reader.Sample) error { return nil }}, reader.ErrOptions, "Map"},
	} {
		if _, err := c.d.Stream(t.Context(), c.o); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %q", err, c.text)
		}
	}
}

// TestRowsMemory counts the samples that are made from rows in the memory of a stream, as many
// batches of them as may be in hand.
func TestRowsMemory(t *testing.T) {
	const batch, file = 1 << 16, 128 + 600 + 128 + 8 // of a sample: two NPY files
	o := reader.StreamOptions{Shuffle: true, GlobalBatch: batch, Order: reader.OrderOptions{Lanes: 64, RunBlocks: 8, Delay: 64}}
	memory := func(layout writer.Layout, rows bool) int64 {
		d := openSet(t, wideSet(t, 2000, false, writer.Options{Layout: layout}))
		return mustStream(t, d, o, rows).Info().Memory
	}
	made := memory(writer.LayoutStacked, false) - memory(writer.LayoutStacked, true)
	ordinary := memory(writer.LayoutSamples, false) - memory(writer.LayoutStacked, true)
	if made < ordinary+batch*file {
		t.Errorf("samples made from rows have %d bytes more than rows, samples in tars %d", made, ordinary)
	}
}
