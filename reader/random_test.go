package reader

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// TestWriteTar reads with another program's reader what WriteTar writes.
func TestWriteTar(t *testing.T) {
	samples := mixed(120)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{})
		for n, want := range samples {
			var out bytes.Buffer
			if err := d.WriteTar(t.Context(), uint64(n), &out); err != nil {
				t.Fatal(err)
			}
			r := tar.NewReader(&out)
			for _, f := range want.Fields {
				h, err := r.Next()
				if err != nil || h.Name != format.JoinName(want.Key, f.Name) {
					t.Fatalf("sample %d: %v, %v; want %q", n, h, err, f.Name)
				}
				if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, f.Data) {
					t.Fatalf("sample %d field %q: %d bytes, %v", n, f.Name, len(data), err)
				}
			}
			if _, err := r.Next(); err != io.EOF {
				t.Fatalf("sample %d: %v after the last member", n, err)
			}
		}
	})
}

// full is a writer that accepts a limited number of bytes.
type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestField(t *testing.T) {
	samples := mixed(40)
	for name, o := range ways {
		d := open(t, build(t, samples, o), Options{})
		err := d.Field(t.Context(), 1, "no such", io.Discard)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "jpg") {
			t.Fatalf("%s: %v", name, err)
		}
		if err := d.Field(t.Context(), 40, "jpg", io.Discard); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: %v", name, err)
		}
		// The writer's error is returned unchanged.
		if err := d.Field(t.Context(), 0, "txt", &full{}); !errors.Is(err, errFull) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := d.WriteTar(t.Context(), 0, &full{600}); !errors.Is(err, errFull) {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestMembersInPieces cuts a block into pieces of every size: what a sample's visitor sees must not
// depend on it.
func TestMembersInPieces(t *testing.T) {
	samples := mixed(12)
	d := open(t, build(t, samples, testset.Options{}), Options{})
	var block []byte
	for f, err := range d.Frames(t.Context(), Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		block = append(block, f.Decoded...)
	}
	same := func(err error) error { return err }
	for want := range samples {
		var whole bytes.Buffer
		if err := d.WriteTar(t.Context(), uint64(want), &whole); err != nil {
			t.Fatal(err)
		}
		for size := 1; size < 1600; size += 1 + size/7 {
			var got bytes.Buffer
			take := func(b []byte) error { got.Write(b); return nil }
			m := members{want: want, visitor: visitor{header: take, payload: take, padding: take}}
			for at := 0; at < len(block) && !m.done; at += size {
				if err := m.write(block[at:min(len(block), at+size)], same); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.end(same); err != nil {
				t.Fatal(err)
			}
			if got.Write(make([]byte, 1024)); !bytes.Equal(got.Bytes(), whole.Bytes()) {
				t.Fatalf("sample %d in pieces of %d: %d bytes, not %d", want, size, got.Len(), whole.Len())
			}
		}
	}
	// Cut anywhere before its end, the block does not hold its last sample.
	last := len(samples) - 1
	for n := range block {
		m := members{want: last}
		err := m.whole(block[:n], same)
		if !errors.Is(err, format.ErrCorrupt) && !(err == nil && n > len(block)-512) && !bytes.HasPrefix(block[n:], []byte(samples[last].Key)) {
			t.Fatalf("block of %d bytes cut to %d: %v", len(block), n, err)
		}
	}
}

// TestMembersHostile: a long name record that claims gigabytes is refused without waiting for them.
func TestMembersHostile(t *testing.T) {
	header := tarblock.AppendHeader(nil, strings.Repeat("n", 300), 0)[:512]
	copy(header[124:], "17777777777\x00")
	m := members{}
	for range 100 {
		if err := m.write(header, func(err error) error { return err }); err != nil {
			if !errors.Is(err, format.ErrCorrupt) || len(m.head) > maxHeaders {
				t.Fatalf("%d bytes kept: %v", len(m.head), err)
			}
			return
		}
	}
	t.Fatalf("%d bytes are kept", len(m.head))
}

// TestLookupCollisions gives all keys few hashes: the keys of the samples decide, and the window
// around the guess has to grow.
func TestLookupCollisions(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller: make test runs it without the race detector")
	}
	samples := make([]testset.Sample, 5000)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprintf("k%05d", (i*37)%5000), Fields: []testset.Field{{Name: "x"}}}
	}
	target := samplekey.Hash("k00037") // sample 1
	for name, hash := range map[string]func(string) uint64{
		"all one":   func(string) uint64 { return target },
		"two":       func(k string) uint64 { return target + uint64(len(k)&1) },
		"far above": func(k string) uint64 { return map[bool]uint64{true: target, false: 1}[k == "k00037"] },
		"far below": func(k string) uint64 { return map[bool]uint64{true: target, false: 1<<64 - 1}[k == "k00037"] },
		"three": func(k string) uint64 {
			return map[bool]uint64{true: target, false: samplekey.Hash(k)}[k == "k00037" || k == "k00074" || k == "k04999"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, build(t, samples, testset.Options{BlockSize: 64 << 10, ShardSize: 512 << 10, KeyHash: hash}), Options{})
			if n, err := d.Lookup(t.Context(), "k00037"); err != nil || !slices.Equal(n, []uint64{1}) {
				t.Fatalf("%v, %v", n, err)
			}
		})
	}
}

// TestLookupDuplicates finds all samples of a key that several shards have.
func TestLookupDuplicates(t *testing.T) {
	for _, noKeys := range []bool{false, true} {
		var samples []testset.Sample
		for i := range 60 {
			samples = append(samples, testset.Sample{Key: fmt.Sprintf("k%02d", i%20), Fields: []testset.Field{{Name: "x"}}})
		}
		d := open(t, build(t, samples, testset.Options{BlockSize: 2048, ShardSize: 20 * 512, NoKeys: noKeys}), Options{})
		if n, err := d.Lookup(t.Context(), "k07"); err != nil || !slices.Equal(n, []uint64{7, 27, 47}) {
			t.Fatalf("%v, %v", n, err)
		}
	}
}

func TestLookupMissing(t *testing.T) {
	samples := mixed(200)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{})
		for key, hint := range map[string]string{
			"":             "",
			"zzz":          "",
			"CLASS0/00000": "",
			"class1/0000x": "nearest",
			"class1/99999": "class",
			"class0/00Q":   "nearest",
		} {
			_, err := d.Lookup(t.Context(), key)
			if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), hint) {
				t.Fatalf("%q: %v", key, err)
			}
		}
	})
	keys := metadata.StoredKeys([]string{"a/B", "c"})
	if hint := nearKeys(&keys, "A/b"); !strings.Contains(hint, `"a/B"`) {
		t.Fatal(hint)
	}
	keys = metadata.StoredKeys([]string{"cafe\u0301", "zoo"})
	if hint := nearKeys(&keys, "caf\u00e9"); hint != `; the nearest are "cafe\u0301" and "zoo"` {
		t.Fatal(hint) // two that look alike are told apart
	}
}

// TestLookupOtherLetters: the key that differs only in case is suggested where another shard has
// it.
func TestLookupOtherLetters(t *testing.T) {
	var samples []testset.Sample
	for _, key := range []string{"ALL/1", "Cat/2", "cat/1", "dog/1", "dog/2", "eel/3"} {
		samples = append(samples, testset.Sample{Key: key, Fields: []testset.Field{{Name: "x"}}})
	}
	for _, noKeys := range []bool{false, true} {
		d := open(t, build(t, samples, testset.Options{BlockSize: 512, ShardSize: 1024, NoKeys: noKeys}), Options{})
		for key, meant := range map[string]string{"Dog/1": "dog/1", "DOG/2": "dog/2", "all/1": "ALL/1", "cat/2": "Cat/2"} {
			_, err := d.Lookup(t.Context(), key)
			if want := fmt.Sprintf("; did you mean %q?", meant); !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%q: %v, want %s", key, err, want)
			}
		}
	}
}

// TestLookupRequests counts what a look-up costs: a key outside of all ranges nothing, another one
// a range of the keys table and a block.
func TestLookupRequests(t *testing.T) {
	samples := mixed(200)
	store := storetest.NewFaulty(build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20000}), storetest.Fault{At: -1})
	d := open(t, store, Options{})
	if _, err := d.Locate(t.Context(), 7); err != nil { // loads the one part
		t.Fatal(err)
	}
	before := store.Ops()
	if _, err := d.Lookup(t.Context(), "zzz"); err == nil || store.Ops() != before {
		t.Fatalf("%d operations, %v", store.Ops()-before, err)
	}
	if _, err := d.Lookup(t.Context(), samples[7].Key); err != nil || store.Ops()-before != 6 {
		t.Fatalf("%d operations, %v; want open, info and one read each of keys table and shard", store.Ops()-before, err)
	}
	before = store.Ops()
	if _, err := d.Get(t.Context(), 8); err != nil || store.Ops()-before > 1 {
		t.Fatalf("%d operations, %v", store.Ops()-before, err)
	}
}

// TestGetKeeps: a sample from Get stays what it is, whatever is read later.
func TestGetKeeps(t *testing.T) {
	samples := mixed(100)
	samples[50].Fields = []testset.Field{{Name: "big", Data: bytes.Repeat([]byte("0123456789"), 40_000)}}
	for _, o := range ways {
		d := open(t, build(t, samples, o), Options{})
		var kept []*Sample
		for range 2 {
			for n := range samples {
				s, err := d.Get(t.Context(), uint64(n))
				if err != nil {
					t.Fatal(err)
				}
				kept = append(kept, s)
			}
		}
		for i, s := range kept {
			if err := equal(s, i%100, samples[i%100]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGetAllocates: a sample larger than the memory is not copied while it is read.
func TestGetAllocates(t *testing.T) {
	large := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	samples := []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "big", Data: large}}}}
	d := open(t, build(t, samples, testset.Options{}), Options{Memory: 32 << 20})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := d.Get(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if err := equal(s, 0, samples[0]); err != nil {
		t.Fatal(err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*uint64(len(large)) {
		t.Errorf("%d bytes were allocated for a sample of %d", n, len(large))
	}
}
