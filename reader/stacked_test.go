package reader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/writer"
)

// rowSet packs n samples of two arrays in a layout. Samples of all layouts are the same.
func rowSet(t *testing.T, n int, stored bool, opt writer.Options) objstore.Store {
	t.Helper()
	st := mem.New()
	opt.BlockSize, opt.ShardSize, opt.Workers = 4<<10, 12<<10, 2
	w, err := writer.New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		x := append(npy.AppendHeader(nil, "<u2", 3), byte(i), byte(i>>8), 1, 0, 2, 0)
		y := append(npy.AppendHeader[int](nil, "|u1"), byte(i))
		key := fmt.Sprintf("s/%09d", i)
		if stored {
			key = fmt.Sprintf("%x/%d", i*7919%4093, i*31)
		}
		s := writer.Sample{Key: key, Fields: []writer.Field{{Name: "x.npy", Data: x}, {Name: "y.npy", Data: y}}}
		s.Attrs = []format.AttrValue{{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(i)}}
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

func openSet(t *testing.T, st objstore.Store) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), st, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestStacked reads a stacked data set on every path and compares it with an ordinary one that has
// the same samples.
func TestStacked(t *testing.T) {
	const n = 2500
	for _, stored := range []bool{false, true} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("stored=%v,plain=%v", stored, plain), func(t *testing.T) {
				want := openSet(t, rowSet(t, n, stored, writer.Options{}))
				got := openSet(t, rowSet(t, n, stored, writer.Options{Layout: writer.LayoutStacked, Plain: plain}))
				if (got.Info().KeysTable == "") != !stored {
					t.Errorf("keys table %q", got.Info().KeysTable)
				}
				inOrder(t, got, want)
				atRandom(t, got, want)
				inStream(t, got, want)
				res, err := check.Verify(t.Context(), got.Store(), check.Options{Deep: true})
				if err != nil || len(res.Faults) > 0 {
					t.Errorf("%v %+v", err, res)
				}
			})
		}
	}
}

func sameSample(t *testing.T, got, want *reader.Sample) {
	t.Helper()
	if got.Number != want.Number || string(got.Key) != string(want.Key) || len(got.Fields) != len(want.Fields) {
		t.Fatalf("sample %d %q of %d fields, not %d %q of %d", got.Number, got.Key, len(got.Fields), want.Number, want.Key, len(want.Fields))
	}
	for i := range want.Fields {
		if !bytes.Equal(got.Fields[i].Name, want.Fields[i].Name) || !bytes.Equal(got.Fields[i].Data, want.Fields[i].Data) {
			t.Fatalf("sample %d: field %q is %q, not %q", got.Number, got.Fields[i].Name, got.Fields[i].Data, want.Fields[i].Data)
		}
	}
}

func inOrder(t *testing.T, got, want *reader.Dataset) {
	t.Helper()
	tar := func(d *reader.Dataset) (out []byte) {
		for f, err := range d.Frames(t.Context(), reader.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f.Decoded...)
		}
		return out
	}
	if !bytes.Equal(tar(got), tar(want)) {
		t.Error("the frames are not the same tar")
	}
	var all []reader.Sample
	for s, err := range want.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Clone())
	}
	i := 0
	for s, err := range got.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		sameSample(t, s, &all[i])
		i++
	}
	if i != len(all) {
		t.Errorf("%d samples of %d", i, len(all))
	}
}

func atRandom(t *testing.T, got, want *reader.Dataset) {
	t.Helper()
	ctx := context.Background()
	numbers := []uint64{0, 1, 700, 701, 2499, 3}
	a, err := got.Keys(ctx, numbers)
	if err != nil {
		t.Fatal(err)
	}
	all, err := got.LookupAll(ctx, append(a, "none/7"))
	if err != nil || len(all[6]) != 0 {
		t.Fatal(all, err)
	}
	for i, n := range numbers {
		w, err := want.Get(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		g, err := got.Get(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		sameSample(t, g, w)
		if a[i] != string(w.Key) || len(all[i]) != 1 || all[i][0] != n {
			t.Errorf("number %d: key %q, found at %v", n, a[i], all[i])
		}
		found, err := got.Lookup(ctx, a[i])
		if err != nil || len(found) != 1 || found[0] != n {
			t.Errorf("%q is at %v: %v", a[i], found, err)
		}
		var one, two bytes.Buffer
		if err := got.WriteTar(ctx, n, &one); err != nil {
			t.Fatal(err)
		}
		if err := want.WriteTar(ctx, n, &two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("the tar of sample %d differs: %v", n, err)
		}
		one.Reset()
		if err := got.Field(ctx, n, "y.npy", &one); err != nil || !bytes.Equal(one.Bytes(), w.Fields[1].Data) {
			t.Errorf("field of sample %d: %q %v", n, one.Bytes(), err)
		}
	}
	for _, key := range []string{"s/1", "s/000002500", "s/00000000a", "zz", ""} {
		if _, err := got.Lookup(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// inStream compares the samples of shuffled streams by their numbers: other cuts are another order.
func inStream(t *testing.T, got, want *reader.Dataset) {
	t.Helper()
	read := func(d *reader.Dataset) map[uint64]reader.Sample {
		s, err := d.Stream(t.Context(), reader.StreamOptions{Shuffle: true, Seed: 3, GlobalBatch: 64, Epochs: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all := map[uint64]reader.Sample{}
		for {
			b, err := s.Next(t.Context())
			if err == io.EOF {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Samples {
				all[b.Samples[i].Number] = b.Samples[i].Clone()
			}
		}
	}
	a, b := read(got), read(want)
	if len(a) != len(b) || uint64(len(a)) != want.NumSamples() {
		t.Fatalf("%d samples, and %d", len(a), len(b))
	}
	for n := range a {
		x, y := a[n], b[n]
		sameSample(t, &x, &y)
	}
}
