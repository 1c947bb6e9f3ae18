package reader

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func TestMain(m *testing.M) {
	// All goroutines, those that wait at the same place together: the end of a log has room for that.
	guard := time.AfterFunc(28*time.Minute, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		panic("a test hangs")
	})
	code := m.Run()
	guard.Stop()
	for _, dir := range benchDirs {
		os.RemoveAll(dir)
	}
	if code == 0 {
		err := goleak.Find()
		for late := 0; err != nil && late < 20; late++ { // on a busy machine goroutines end late
			time.Sleep(500 * time.Millisecond)
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// mixed are n samples of several shapes: text that compresses, noise that does not, empty fields,
// long names.
func mixed(n int) []testset.Sample {
	random := rand.New(rand.NewPCG(1, 2))
	noise := rand.NewChaCha8([32]byte{7})
	samples := make([]testset.Sample, n)
	for i := range samples {
		s := &samples[i]
		s.Key = fmt.Sprintf("class%d/%05d", i%3, (i*7919)%n)
		if i%11 == 5 {
			s.Key = fmt.Sprintf("%s/%0150d/%05d", s.Key, i, i) // needs an extended header
		}
		text := bytes.Repeat([]byte(fmt.Sprintf("sample %d says so ", i)), 1+random.IntN(40))
		raw := make([]byte, random.IntN(900))
		noise.Read(raw)
		switch i % 4 {
		case 0:
			s.Fields = []testset.Field{{Name: "txt", Data: text}}
		case 1:
			s.Fields = []testset.Field{{Name: "", Data: nil}, {Name: "jpg", Data: raw}, {Name: "txt", Data: text}}
		case 2:
			s.Fields = []testset.Field{{Name: "jpg", Data: raw}}
		default:
			s.Fields = []testset.Field{{Name: "a.b", Data: []byte{}}, {Name: "txt", Data: text}}
		}
	}
	return samples
}

// build packs samples into a store in memory.
func build(t testing.TB, samples []testset.Sample, o testset.Options) *mem.Store {
	t.Helper()
	store := mem.New()
	buildIn(t, store, slices.Values(samples), o)
	return store
}

func buildIn(t testing.TB, store objstore.Store, samples iter.Seq[testset.Sample], o testset.Options) *testset.Set {
	t.Helper()
	set, err := testset.Build(context.Background(), store, samples, o)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// onDisk copies a store's objects to one in a directory.
func onDisk(t testing.TB, from objstore.Store) objstore.Store {
	t.Helper()
	to, err := local.New(t.TempDir(), local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range from.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(context.Background(), from, info.Name, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		put(t, to, info.Name, data)
	}
	return to
}

func put(t testing.TB, store objstore.Store, name string, data []byte) {
	t.Helper()
	if _, err := objstore.Put(context.Background(), store, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func object(t testing.TB, store objstore.Store, name string) []byte {
	t.Helper()
	data, _, err := objstore.ReadAll(context.Background(), store, name, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func open(t testing.TB, store objstore.Store, o Options) *Dataset {
	t.Helper()
	d, err := Open(context.Background(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// equal compares a sample with what was packed.
func equal(got *Sample, number int, want testset.Sample) error {
	if got.Number != uint64(number) || string(got.Key) != want.Key || len(got.Fields) != len(want.Fields) {
		return fmt.Errorf("sample %d %q with %d fields, want %d %q with %d", got.Number, got.Key, len(got.Fields), number, want.Key, len(want.Fields))
	}
	for i, f := range want.Fields {
		if string(got.Fields[i].Name) != f.Name || !bytes.Equal(got.Fields[i].Data, f.Data) {
			return fmt.Errorf("sample %d %q: field %q differs from %q", number, want.Key, got.Fields[i].Name, f.Name)
		}
	}
	return nil
}

// ways are ways to store the same samples: many small blocks and shards, blocks of several frames,
// plain, raw.
var ways = map[string]testset.Options{
	"zstd":   {BlockSize: 2000, ShardSize: 20000},
	"frames": {BlockSize: 5000, FrameSize: 1500, ShardSize: 30000},
	"raw":    {BlockSize: 2000, ShardSize: 20000, Raw: true},
	"plain":  {BlockSize: 3000, FrameSize: 2048, ShardSize: 20000, Plain: true},
	"nokeys": {BlockSize: 2000, ShardSize: 20000, NoKeys: true},
	"one":    {},
}

// eachKind runs a test over every kind, in memory and on disk.
func eachKind(t *testing.T, samples []testset.Sample, test func(t *testing.T, store objstore.Store)) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			store := build(t, samples, o)
			t.Run("mem", func(t *testing.T) { test(t, store) })
			t.Run("local", func(t *testing.T) { test(t, onDisk(t, store)) })
		})
	}
}

func TestSamples(t *testing.T) {
	samples := mixed(400)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		for _, workers := range []int{1, 2, 7} {
			d := open(t, store, Options{Workers: workers})
			n := 0
			for s, err := range d.Samples(t.Context(), Range{}) {
				if err != nil {
					t.Fatal(err)
				}
				if err := equal(s, n, samples[n]); err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != len(samples) || d.NumSamples() != uint64(n) {
				t.Fatalf("%d samples of %d", n, len(samples))
			}
		}
	})
}

func TestFrames(t *testing.T) {
	samples := mixed(400)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{Workers: 3})
		for from := range d.NumShards() {
			var got []byte
			rows, first, block := 0, uint64(0), -1
			for f, err := range d.Frames(t.Context(), Range{From: from, To: from + 1}) {
				if err != nil {
					t.Fatal(err)
				}
				if f.Samples > 0 {
					block++
					want, err := d.Locate(t.Context(), f.FirstSample)
					if err != nil || want != (Location{Shard: from, Block: block}) {
						t.Fatalf("sample %d is at %v, %v; the frame says shard %d block %d", f.FirstSample, want, err, from, block)
					}
					first = f.FirstSample
				}
				if f.Row != rows || f.Shard != from || f.Block != block || f.FirstSample != first {
					t.Fatalf("frame %+v, want row %d of block %d", f, rows, block)
				}
				rows++
				got = append(got, f.Decoded...)
			}
			info, err := d.Shard(t.Context(), from)
			if err != nil || rows != int(info.Rows) || block+1 != int(info.Blocks) {
				t.Fatalf("%d rows, %d blocks; shard %+v, %v", rows, block+1, info, err)
			}
		}
	})
}

func TestGet(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller: make test runs it without the race detector")
	}
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{})
		for n, want := range samples {
			s, err := d.Get(t.Context(), uint64(n))
			if err != nil {
				t.Fatal(err)
			}
			if err := equal(s, n, want); err != nil {
				t.Fatal(err)
			}
			found, err := d.Lookup(t.Context(), want.Key)
			if err != nil || !slices.Equal(found, []uint64{uint64(n)}) {
				t.Fatalf("key %q: %v, %v; want %d", want.Key, found, err, n)
			}
			for _, f := range want.Fields {
				var out bytes.Buffer
				if err := d.Field(t.Context(), uint64(n), f.Name, &out); err != nil || !bytes.Equal(out.Bytes(), f.Data) {
					t.Fatalf("sample %d field %q: %d bytes, %v", n, f.Name, out.Len(), err)
				}
			}
		}
	})
}
