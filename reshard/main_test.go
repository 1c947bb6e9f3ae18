package reshard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// some are n samples of several shapes, with attributes of every kind that some of them lack.
func some(name string, n int) []writer.Sample {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	out := make([]writer.Sample, n)
	for i := range out {
		s := &out[i]
		s.Key = fmt.Sprintf("%s/%d/%05d", name, i/40, i)
		noise := make([]byte, random.IntN(600))
		for j := range noise {
			noise[j] = byte(random.Uint32())
		}
		s.Fields = []writer.Field{{Name: "jpg", Data: noise}, {Name: "txt", Data: bytes.Repeat([]byte{byte('a' + i%26)}, i%300)}}
		if i%7 == 3 {
			s.Fields = s.Fields[1:]
		}
		if i%5 != 2 {
			s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "label", Kind: format.AttrLabel}, Label: []string{"cat", "dog"}[i%2]})
		}
		s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(i) - 50})
		if i%3 == 0 {
			s.Attrs = append(s.Attrs, format.AttrValue{Attribute: format.Attribute{Name: "x", Kind: format.AttrNumber}, Number: float64(i) / 4})
		}
	}
	return out
}

// small makes many blocks and shards of few samples.
var small = writer.Options{BlockSize: 4096, ShardSize: 40 << 10}

func pack(t testing.TB, samples []writer.Sample, o writer.Options) *mem.Store {
	t.Helper()
	store := mem.New()
	w, err := writer.New(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, s := range samples {
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

func open(t testing.TB, store objstore.Store, o reader.Options) *reader.Dataset {
	t.Helper()
	d, err := reader.Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func source(t testing.TB, opt Options, sets ...*reader.Dataset) writer.Splitter {
	t.Helper()
	s, err := New(t.Context(), sets, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// drain copies what is left of a source. Errors of samples are taken down as their keys.
func drain(t testing.TB, s writer.Splitter) (out []writer.Sample, failed []string) {
	t.Helper()
	for {
		in, err := s.Next(t.Context())
		var se *writer.SampleError
		switch {
		case errors.Is(err, io.EOF):
			return out, failed
		case errors.As(err, &se):
			failed = append(failed, se.Key)
			continue
		case err != nil:
			t.Fatal(err)
		}
		out = append(out, detach(t, in))
	}
}

// detach copies a sample, payloads read.
func detach(t testing.TB, in writer.Sample) writer.Sample {
	t.Helper()
	s := writer.Sample{Key: in.Key, Attrs: slices.Clone(in.Attrs)}
	for _, f := range in.Fields {
		data := slices.Clone(f.Data)
		if f.Payload != nil {
			data = make([]byte, f.Size)
			if err := f.Payload.ReadInto(t.Context(), data); err != nil {
				t.Fatal(err)
			}
			r, err := f.Payload.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			again, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(again, data) {
				t.Fatalf("%s.%s: Open gives %d bytes, ReadInto %d, %v", s.Key, f.Name, len(again), len(data), err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s.Fields = append(s.Fields, writer.Field{Name: f.Name, Data: data})
	}
	return s
}

func keysOf(samples []writer.Sample) (keys []string) {
	for _, s := range samples {
		keys = append(keys, s.Key)
	}
	return keys
}

func same(t testing.TB, got, want []writer.Sample) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d", len(got), len(want))
	}
	for i := range got {
		a, b := got[i], want[i]
		ok := a.Key == b.Key && slices.Equal(a.Attrs, b.Attrs) &&
			slices.EqualFunc(a.Fields, b.Fields, func(x, y writer.Field) bool { return x.Name == y.Name && bytes.Equal(x.Data, y.Data) })
		if !ok {
			t.Fatalf("sample %d: %q with %d fields and attributes %v, want %q with %d and %v", i, a.Key, len(a.Fields), a.Attrs, b.Key, len(b.Fields), b.Attrs)
		}
	}
}

func digest(t testing.TB, store objstore.Store) format.Hash {
	t.Helper()
	return open(t, store, reader.Options{}).Digest()
}

// repack packs a source into a new store.
func repack(t testing.TB, s writer.Source, o writer.Options) (*mem.Store, *writer.Result, error) {
	t.Helper()
	store := mem.New()
	res, err := writer.Pack(context.Background(), store, s, o)
	return store, res, err
}
