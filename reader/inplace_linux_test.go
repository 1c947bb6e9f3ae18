package reader_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// plainTars packs n samples of 3 KB, which hold their number again and again, into plain tars.
func plainTars(t *testing.T, n int) (dir string, ds *reader.Dataset) {
	t.Helper()
	dir = t.TempDir()
	st, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(t.Context(), st, writer.Options{Plain: true, BlockSize: 16 << 10, ShardSize: 200 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		key := fmt.Sprintf("%06d", i)
		fields := []writer.Field{{Name: "bin", Data: bytes.Repeat([]byte(key), 500)}, {Name: "txt", Data: []byte(key)}}
		if err := w.Write(t.Context(), writer.Sample{Key: key, Fields: fields}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settled)
	if ds, err = reader.Open(t.Context(), st, reader.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	mapped(t, dir)
	return dir, ds
}

func inPlaceStream(t *testing.T, ds *reader.Dataset, memory int64, batch int) *reader.Stream {
	t.Helper()
	s, err := ds.Stream(t.Context(), reader.StreamOptions{
		Order:  reader.Order{GlobalBatch: batch, Shuffle: true, Seed: 3, ShuffleMemory: 256 << 10, Epochs: 3},
		Read:   reader.Read{InPlace: true, Workers: 2},
		Limits: reader.Limits{Memory: memory},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// takeAll copies the samples of a batch and checks them.
func takeAll(t *testing.T, b *reader.Batch) error {
	t.Helper()
	var got []reader.Sample
	if err := b.Copy(func() error {
		got = got[:0]
		for i := range b.Samples {
			got = append(got, b.Samples[i].Clone())
		}
		return nil
	}); err != nil {
		return err
	}
	for _, s := range got {
		key := fmt.Sprintf("%06d", s.Number)
		if string(s.Key) != key || len(s.Fields) != 2 || string(s.Fields[0].Name) != "bin" || !bytes.Equal(s.Fields[0].Data, bytes.Repeat([]byte(key), 500)) || string(s.Fields[1].Data) != key {
			t.Fatalf("sample %d is %q with %d fields", s.Number, s.Key, len(s.Fields))
		}
	}
	return nil
}

// TestInPlace streams plain tars in the page cache, in batches that fit the memory and in ones that
// are copied block by block.
func TestInPlace(t *testing.T) {
	dir, ds := plainTars(t, 900)
	for _, c := range []struct {
		memory int64
		batch  int
	}{{0, 30}, {1 << 20, 400}} {
		s := inPlaceStream(t, ds, c.memory, c.batch)
		seen, most := map[uint64]int{}, 0
		for b, err := range s.Batches(t.Context()) {
			if err == nil {
				err = takeAll(t, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Samples {
				seen[b.Samples[i].Number]++
			}
			most = max(most, mappings(t, dir))
		}
		if len(seen) < 800 || most == 0 {
			t.Errorf("batches of %d: %d samples of at most %d mappings", c.batch, len(seen), most)
		}
		s.Close()
	}
	ds.Close()
	if n := mappings(t, dir); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}

// TestChangedBeforeCopyOfSamples changes a shard between Next and Copy, and while Copy runs.
func TestChangedBeforeCopyOfSamples(t *testing.T) {
	for name, c := range changes {
		for _, within := range []bool{false, true} {
			t.Run(name+"/within="+strconv.FormatBool(within), func(t *testing.T) {
				dir, ds := plainTars(t, 60)
				s := inPlaceStream(t, ds, 0, 40)
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if mappings(t, dir) == 0 {
					t.Fatal("no shard was mapped")
				}
				if !within {
					change(t, dir, c.change)
					err = takeAll(t, b)
				} else {
					runs := 0
					err = b.Copy(func() error {
						if runs++; runs == 1 {
							change(t, dir, c.change)
						}
						for i := range b.Samples {
							if s := b.Samples[i].Clone(); string(s.Key) != fmt.Sprintf("%06d", s.Number) {
								return errors.New("of what was overwritten") // Copy finds out why
							}
						}
						return nil
					})
					if c.whole && runs < 2 {
						t.Errorf("f ran %d times", runs)
					}
				}
				if c.whole {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				otherContent(t, err)
			})
		}
	}
}

// TestCopyReturnsTheError: the error of f is the caller's, with and without mapped samples.
func TestCopyReturnsTheError(t *testing.T) {
	_, ds := plainTars(t, 60)
	want := errors.New("mine")
	for _, in := range []bool{false, true} {
		s, err := ds.Stream(t.Context(), reader.StreamOptions{Order: reader.Order{GlobalBatch: 30}, Read: reader.Read{InPlace: in}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Copy(func() error { return want }); err != want {
			t.Errorf("InPlace %v: %v", in, err)
		}
		s.Close()
	}
}
