package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// tiny are a few samples in two shards: small enough to damage every byte.
func tiny(t testing.TB, o testset.Options) (*mem.Store, []testset.Sample) {
	samples := make([]testset.Sample, 6)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprintf("k%d", i), Fields: []testset.Field{{Name: "cls", Data: []byte{byte('0' + i)}}}}
	}
	o.BlockSize, o.ShardSize = 2048, 4096
	return build(t, samples, o), samples
}

// damaged is a copy of a store with one object replaced.
func damaged(t testing.TB, from *mem.Store, name string, data []byte) *mem.Store {
	t.Helper()
	store := from.Clone()
	put(t, store, name, data)
	return store
}

// readAll reads all samples and returns the first error. Samples that come must be the right ones.
func readAll(t testing.TB, store objstore.Store, o Options, want []testset.Sample) error {
	t.Helper()
	d, err := Open(context.Background(), store, o)
	if err != nil {
		return err
	}
	defer d.Close()
	n := 0
	for s, err := range d.Samples(context.Background(), Range{}) {
		if err != nil {
			return err
		}
		if n >= len(want) {
			t.Fatalf("sample %q after the last one", s.Key)
		}
		if err := equal(s, n, want[n]); err != nil {
			t.Fatalf("wrong bytes: %v", err)
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d samples of %d and no error", n, len(want))
	}
	return nil
}

// found returns the report of Verify, in which a newer version and a missing manifest are faults.
// Other errors fail the test.
func found(t testing.TB, store objstore.Store, deep bool) *check.Report {
	t.Helper()
	r, err := check.Verify(context.Background(), store, check.Options{Workers: 1, Deep: deep})
	if err != nil {
		if !errors.Is(err, format.ErrVersion) && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("verify: %v", err)
		}
		return &check.Report{Faults: []check.Fault{{Kind: check.KindManifest, Detail: err.Error()}}}
	}
	return r
}

// tinyKinds are the ways to store tiny.
var tinyKinds = map[string]testset.Options{"zstd": {}, "raw": {Raw: true}, "plain": {Plain: true}, "frames": {FrameSize: 700}}

func TestTruncated(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller, one worker: make test runs it without the race detector")
	}
	for kind, o := range tinyKinds {
		store, samples := tiny(t, o)
		for info := range store.List(t.Context(), "") {
			t.Run(kind+"/"+info.Name, func(t *testing.T) {
				whole := object(t, store, info.Name)
				step := 3 // every third byte of the ordinary kind
				if kind != "zstd" {
					step = 11
				}
				for n := 0; n < len(whole); n += step {
					cut := damaged(t, store, info.Name, whole[:n])
					err := readAll(t, cut, Options{Workers: 1}, samples)
					archive := strings.HasSuffix(info.Name, ".zst") || strings.HasSuffix(info.Name, ".tar")
					if archive && (!errors.Is(err, format.ErrCorrupt) || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), info.Name)) {
						t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
					}
					for _, deep := range []bool{false, true} {
						r := found(t, cut, deep)
						if r.OK() {
							t.Fatalf("cut to %d of %d bytes: deep %v finds nothing", n, len(whole), deep)
						}
						if archive && (len(r.Faults) != 1 || r.Faults[0].Kind != check.KindTruncated || r.Faults[0].Shard != info.Name) {
							t.Fatalf("cut to %d of %d bytes: %+v", n, len(whole), r.Faults)
						}
					}
				}
			})
		}
	}
}

// TestFlipped flips bits in every byte of every object. Deep verification finds each; no wrong
// sample is ever delivered.
func TestFlipped(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller, one worker: make test runs it without the race detector")
	}
	for kind, o := range tinyKinds {
		store, samples := tiny(t, o)
		for info := range store.List(t.Context(), "") {
			t.Run(kind+"/"+info.Name, func(t *testing.T) {
				whole := object(t, store, info.Name)
				// Two or three bits of each byte of the ordinary kind, one of the others; every bit in turn.
				step := 3
				if kind != "zstd" {
					step = 9
				}
				for bit := 0; bit < 8*len(whole); bit += step {
					data := slices.Clone(whole)
					data[bit/8] ^= 1 << (bit % 8)
					bad := damaged(t, store, info.Name, data)
					if found(t, bad, true).OK() {
						t.Fatalf("bit %d of byte %d of %d: deep verification finds nothing", bit%8, bit/8, len(whole))
					}
					_ = readAll(t, bad, Options{Workers: 1}, samples) // which fails the test for wrong bytes
				}
			})
		}
	}
}

// TestFlippedBlock checks the place: shard, block, offset, kind and the first key of the block.
func TestFlippedBlock(t *testing.T) {
	if testing.Short() {
		t.Skip("one caller, one worker: make test runs it without the race detector")
	}
	samples := mixed(200)
	for kind, o := range ways {
		if kind == "one" { // one block: nothing beside it to stay right
			continue
		}
		t.Run(kind, func(t *testing.T) {
			store := build(t, samples, o)
			d := open(t, store, Options{})
			info, _ := d.Shard(t.Context(), 1)
			rows, err := d.Rows(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			first, _ := d.FirstSample(t.Context(), 1)
			block, offset, sample := -1, int64(0), first
			for i, r := range rows {
				if r.Samples > 0 {
					block++
				}
				data := object(t, store, info.Name)
				data = slices.Clone(data)
				data[offset+int64(r.Stored)/2] ^= 0x10
				bad := damaged(t, store, info.Name, data)
				r1 := verify(t, bad, true)
				if len(r1.Faults) != 1 {
					t.Fatalf("row %d: %+v", i, r1.Faults)
				}
				f := r1.Faults[0]
				if f.Shard != info.Name || f.Block != block || f.Offset != offset || f.Kind != check.KindChecksum || f.Key != samples[sample].Key {
					t.Fatalf("row %d: %+v; want block %d at %d, key %q", i, f, block, offset, samples[sample].Key)
				}
				if r1.Blocks != d.Info().Blocks-1 || r1.Shards != uint64(d.NumShards())-1 {
					t.Fatalf("row %d: %d blocks and %d shards are good", i, r1.Blocks, r1.Shards)
				}
				// Samples before the block come, then the error.
				err := readUntil(t, bad, samples, int(sample))
				var at *format.PosError
				if !errors.As(err, &at) || at.Shard != info.Name || at.Block != block || !errors.Is(err, format.ErrCorrupt) {
					t.Fatalf("row %d: %v", i, err)
				}
				offset += int64(r.Stored)
				if i+1 == len(rows) || rows[i+1].Samples > 0 {
					sample += uint64((&fetch.Shard{Rows: rows}).SamplesOf(i))
				}
			}
		})
	}
}

// readUntil expects exactly want samples and then an error.
func readUntil(t testing.TB, store objstore.Store, samples []testset.Sample, want int) error {
	t.Helper()
	d := open(t, store, Options{Workers: 2})
	n := 0
	for s, err := range d.Samples(context.Background(), Range{}) {
		if err != nil {
			if n != want {
				t.Fatalf("%d samples before the error, want %d: %v", n, want, err)
			}
			return err
		}
		if err := equal(s, n, samples[n]); err != nil {
			t.Fatal(err)
		}
		n++
	}
	t.Fatalf("%d samples and no error", n)
	return nil
}

// TestWrongObjects has objects that are whole in themselves and are the wrong ones.
func TestWrongObjects(t *testing.T) {
	ctx := context.Background()
	for _, o := range []testset.Options{{BlockSize: 2000, ShardSize: 20000}, {BlockSize: 2000, ShardSize: 20000, Plain: true}} {
		samples := mixed(200)
		store := build(t, samples, o)
		d := open(t, store, Options{})
		a, _ := d.Shard(ctx, 1)
		b, _ := d.Shard(ctx, 2)
		dataA, dataB := object(t, store, a.Name), object(t, store, b.Name)
		for _, c := range []struct {
			name   string
			kinds  []string
			damage func(s *mem.Store)
		}{
			{"swapped", []string{check.KindTruncated, check.KindSize, check.KindChecksum, check.KindIndex}, func(s *mem.Store) {
				put(t, s, a.Name, dataB)
				put(t, s, b.Name, dataA)
			}},
			{"missing", []string{check.KindMissing}, func(s *mem.Store) { s.Delete(ctx, a.Name) }},
			{"renamed", []string{check.KindMissing}, func(s *mem.Store) {
				s.Delete(ctx, a.Name)
				put(t, s, "other-"+a.Name, dataA)
			}},
			{"joined", []string{check.KindSize}, func(s *mem.Store) { put(t, s, a.Name, slices.Concat(dataA, dataB)) }},
			{"joined before", []string{check.KindSize}, func(s *mem.Store) { put(t, s, a.Name, slices.Concat(dataB, dataA)) }},
			{"grown", []string{check.KindSize}, func(s *mem.Store) { put(t, s, a.Name, append(slices.Clone(dataA), 0)) }},
			{"empty", []string{check.KindTruncated}, func(s *mem.Store) { put(t, s, a.Name, nil) }},
		} {
			t.Run(fmt.Sprintf("plain=%v/%s", o.Plain, c.name), func(t *testing.T) {
				bad := store.Clone()
				c.damage(bad)
				err := readAll(t, bad, Options{}, samples)
				if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), a.Name) || errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("read: %v", err)
				}
				for _, deep := range []bool{false, true} {
					r := verify(t, bad, deep)
					if r.OK() || r.Faults[0].Shard != a.Name || !slices.Contains(c.kinds, r.Faults[0].Kind) {
						t.Fatalf("deep %v: %+v", deep, r.Faults)
					}
					if deep && r.Shards < uint64(d.NumShards())-2 {
						t.Fatalf("only %d shards of %d were looked at", r.Shards, d.NumShards())
					}
				}
				if c.name == "renamed" {
					if r := verify(t, bad, false); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "other-"+a.Name) {
						t.Fatalf("notes %q", r.Notes)
					}
				}
			})
		}
	}
}

// TestSwappedEqualSizes exchanges shards that nothing but their content tells apart.
func TestSwappedEqualSizes(t *testing.T) {
	var samples []testset.Sample
	for i := range 40 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("k%02d", i), Fields: []testset.Field{{Name: "cls", Data: []byte("x")}}})
	}
	store := build(t, samples, testset.Options{BlockSize: 2048, ShardSize: 8192, Raw: true})
	d := open(t, store, Options{})
	a, _ := d.Shard(t.Context(), 0)
	b, _ := d.Shard(t.Context(), 1)
	if a.Size != b.Size {
		t.Fatalf("sizes %d and %d: the test needs equal ones", a.Size, b.Size)
	}
	dataA, dataB := object(t, store, a.Name), object(t, store, b.Name)
	put(t, store, a.Name, dataB)
	put(t, store, b.Name, dataA)
	if err := readAll(t, store, Options{}, samples); !errors.Is(err, format.ErrCorrupt) {
		t.Fatal(err)
	}
	for _, deep := range []bool{false, true} {
		r := verify(t, store, deep)
		if len(r.Faults) < 2 || r.Faults[0].Shard != a.Name {
			t.Fatalf("deep %v: %+v", deep, r.Faults)
		}
	}
}

// TestEditedSummary edits every member of manifest.json.
func TestEditedSummary(t *testing.T) {
	store, samples := tiny(t, testset.Options{})
	text := string(object(t, store, format.ManifestName))
	for _, c := range []struct {
		name, old, new string
		opens          bool // readers compare format, tables, digest, generation and removed samples
	}{
		{"format", `shardtool/1`, `shardtool/2`, false},
		{"format/foreign", `shardtool/1`, `other/1`, false},
		{"tables", `"manifest-`, `"manifest-0`, false},
		{"digest", `"sha256:`, `"sha256:0`, false},
		{"digest/other", text[strings.Index(text, "sha256:"):][:71], "sha256:" + strings.Repeat("0", 64), false},
		{"generation", `"generation": 1`, `"generation": 2`, false},
		{"samples", `"samples": 6`, `"samples": 7`, true},
		{"shards", `"shards": 2`, `"shards": 3`, true},
		{"blocks", `"blocks": 3`, `"blocks": 4`, true},
		{"bytes", `"bytes": `, `"bytes": 1`, true},
		{"payload_bytes", `"payload_bytes": 6`, `"payload_bytes": 5`, true},
		{"fields", `"name": "cls"`, `"name": "cl"`, true},
		{"fields/max", `"max": 1`, `"max": 2`, true},
		{"extra", `"generation"`, `"x": 1, "generation"`, true},
		{"spaces", `"generation": 1`, `"generation":1`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			edited := strings.Replace(text, c.old, c.new, 1)
			if edited == text {
				t.Fatalf("%q is not in %s", c.old, text)
			}
			bad := damaged(t, store, format.ManifestName, []byte(edited))
			if err := readAll(t, bad, Options{}, samples); (err == nil) != c.opens {
				t.Fatalf("read: %v", err)
			}
			for _, deep := range []bool{false, true} {
				r := found(t, bad, deep)
				if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindManifest {
					t.Fatalf("%+v", r)
				}
			}
		})
	}
}

// TestReplaced puts another object in the place of a shard while the data set is open.
// reopen has the next read of an object open it again.
func reopen(t *testing.T, d *Dataset, name string) {
	t.Helper()
	err := d.source.Twice(t.Context(), fetch.Key{Name: name}, func(anew bool) error {
		if !anew {
			return format.ErrCorrupt
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReplaced(t *testing.T) {
	samples := mixed(100)
	store := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20000})
	d := open(t, store, Options{})
	if _, err := d.Get(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	info, _ := d.Shard(t.Context(), 0)
	data := slices.Clone(object(t, store, info.Name))
	data[10] ^= 1
	put(t, store, info.Name, data)
	if _, err := d.Get(t.Context(), 0); err != nil {
		t.Fatalf("the open handle: %v", err)
	}
	reopen(t, d, info.Name)
	_, err := d.Get(t.Context(), 0)
	if !errors.Is(err, objstore.ErrChanged) || !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("another object: %v", err)
	}
	put(t, store, info.Name, data[:100])
	reopen(t, d, info.Name)
	if _, err := d.Get(t.Context(), 0); !errors.Is(err, objstore.ErrChanged) {
		t.Fatalf("a shorter object: %v", err)
	}
}

// TestNamesInBlocks changes names in headers alone, with checksums that fit: no way to read a
// sample delivers a key that no writer accepts.
func TestNamesInBlocks(t *testing.T) {
	watch(t)
	samples := make([]testset.Sample, 9)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprintf("dir/key%d", i), Fields: []testset.Field{{Name: "txt", Data: make([]byte, 300)}}}
	}
	ways := map[string]func(d *Dataset) error{
		"stream": func(d *Dataset) error {
			s, err := d.Stream(t.Context(), StreamOptions{GlobalBatch: 2, Epochs: 1})
			if err != nil {
				return err
			}
			defer s.Close()
			for _, err := range s.Batches(t.Context()) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"field": func(d *Dataset) error { return d.Field(t.Context(), 5, "txt", io.Discard) },
		"tar":   func(d *Dataset) error { return d.WriteTar(t.Context(), 5, io.Discard) },
		"one":   func(d *Dataset) error { _, err := d.Get(t.Context(), 5); return err },
		"all": func(d *Dataset) error {
			for _, err := range d.Samples(t.Context(), Range{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"frames": func(d *Dataset) error { return waysToRead["frames"](t.Context(), d, nil) },
		"blocks": func(d *Dataset) error {
			for b, err := range d.Blocks(t.Context(), BlockOptions{}) {
				for err == nil {
					_, err = b.Next()
				}
				if err != io.EOF {
					return err
				}
			}
			return nil
		},
	}
	for kind, o := range tinyKinds {
		o.BlockSize, o.ShardSize = 3000, 1<<20
		for _, name := range []string{"../key5.txt", "/dir/key5.txt", "dir//key5.txt", "dir/./key5.txt", "dir/../../key5.txt", "dir/.txt", "dir/../.txt"} {
			o.Member = func(key, field string) string {
				if key == "dir/key5" {
					return name
				}
				return format.JoinName(key, field)
			}
			d := open(t, build(t, samples, o), Options{})
			for way, read := range ways {
				if err := read(d); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "train-000000") {
					t.Errorf("%s, %q, %s: %v", kind, name, way, err)
				}
			}
		}
		o.Member = nil
		d := open(t, build(t, samples, o), Options{})
		for way, read := range ways {
			if err := read(d); err != nil {
				t.Errorf("%s, %s: %v", kind, way, err)
			}
		}
	}
}
