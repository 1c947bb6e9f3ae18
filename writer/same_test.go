package writer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// mixed has samples of all sizes; with huge, one of several frames.
func mixed(huge bool) *synth {
	s := &synth{items: makeItems(120, 20<<10, 5), tag: "t", attrs: true}
	s.items[17].size = 0
	s.items[50].size = 400 << 10 // larger than a shard
	if huge {
		s.items[51].size = 16 << 20
		s.items[51].seed = 0 // noise: quick to compress
	}
	s.items[100].size = 1 << 20
	return s
}

// TestSameBytes packs one source in many ways that must not show: every object is the same.
func TestSameBytes(t *testing.T) {
	huge := true
	pack := func(edit func(o *writer.Options)) map[string][]byte {
		opt := writer.Options{BlockSize: 32 << 10, ShardSize: 300 << 10, Workers: 1, Level: codec.LevelFastest}
		edit(&opt)
		st := mem.New()
		mustPack(t, st, mixed(huge), opt)
		return objects(t, st)
	}
	want := pack(func(*writer.Options) {})
	sameObjects(t, "several frames, 3 workers", pack(func(o *writer.Options) { o.Workers = 3 }), want)
	sameObjects(t, "several frames, tiny memory", pack(func(o *writer.Options) { o.Workers, o.Memory = 4, 1 }), want)
	huge = false
	want = pack(func(*writer.Options) {})
	if len(want) < 8 {
		t.Fatalf("only %d objects", len(want))
	}
	for n := 2; n <= 8; n++ {
		sameObjects(t, fmt.Sprint("workers ", n), pack(func(o *writer.Options) { o.Workers = n }), want)
	}
	sameObjects(t, "tiny memory", pack(func(o *writer.Options) { o.Workers, o.Memory = 4, 1 }), want)
	sameObjects(t, "much memory", pack(func(o *writer.Options) { o.Workers, o.Memory = 8, 1<<30 }), want)
	dir := t.TempDir()
	sameObjects(t, "other folder for temporary files", pack(func(o *writer.Options) { o.TempDir = dir }), want)
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	sameObjects(t, "GOMAXPROCS=1", pack(func(o *writer.Options) { o.Workers = 0 }), want)
}

// TestSameBytesSpilled sorts more key hashes than fit in memory.
func TestSameBytesSpilled(t *testing.T) {
	pack := func(memory int64, dir string) map[string][]byte {
		src := &synth{items: makeItems(46_000, 1, 3)} // 16 bytes of hash and number each, and 8 to sort by
		st := mem.New()
		mustPack(t, st, src, writer.Options{Memory: memory, TempDir: dir, Plain: true})
		return objects(t, st)
	}
	want := pack(1<<30, filepath.Join(t.TempDir(), "missing")) // nothing is spilled: nobody looks for the folder
	dir := t.TempDir()
	sameObjects(t, "spilled", pack(1, dir), want)
	st := mem.New()
	_, err := writer.Pack(t.Context(), st, &synth{items: makeItems(46_000, 1, 3)}, writer.Options{Memory: 1, TempDir: filepath.Join(dir, "missing"), Plain: true})
	if !os.IsNotExist(unwrapped(err)) {
		t.Fatalf("the test was to spill: %v", err)
	}
}

func unwrapped(err error) error {
	for err != nil && !os.IsNotExist(err) {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
	return err
}

// TestDigestOfContent: level and format change bytes, never the digest; what is cut otherwise has
// another one.
func TestDigestOfContent(t *testing.T) {
	type result struct {
		digest format.Hash
		bytes  uint64
	}
	pack := func(edit func(o *writer.Options), src *synth) result {
		opt := writer.Options{Name: "n", BlockSize: 32 << 10, ShardSize: 300 << 10}
		edit(&opt)
		st := mem.New()
		res := mustPack(t, st, src, opt)
		set := mustLoad(t, st)
		checkSet(t, set, nil, src)
		if set.Digest != res.Digest || res.Samples != uint64(len(set.Samples)) {
			t.Fatalf("%+v", res)
		}
		return result{res.Digest, res.Bytes}
	}
	src := func() *synth { return &synth{items: makeItems(60, 20<<10, 5), attrs: true} }
	want := pack(func(*writer.Options) {}, src())
	sizes := map[uint64]bool{want.bytes: true}
	for _, level := range []codec.Level{codec.LevelFastest, codec.LevelBetter, codec.LevelBest} {
		got := pack(func(o *writer.Options) { o.Level = level }, src())
		if got.digest != want.digest {
			t.Fatalf("level %v has another digest", level)
		}
		sizes[got.bytes] = true
	}
	if len(sizes) < 3 {
		t.Fatal("levels make no difference: are they used?")
	}
	if got := pack(func(o *writer.Options) { o.Plain, o.Name = true, "other" }, src()); got.digest != want.digest || got.bytes <= want.bytes {
		t.Fatal("plain shards under another name have another digest, or are no larger")
	}
	for what, edit := range map[string]func(o *writer.Options){
		"block size":        func(o *writer.Options) { o.BlockSize = 64 << 10 },
		"shard size":        func(o *writer.Options) { o.ShardSize = 200 << 10 },
		"samples per shard": func(o *writer.Options) { o.SamplesPerShard = 7 },
	} {
		if got := pack(edit, src()); got.digest == want.digest {
			t.Fatalf("another %s has the same digest", what)
		}
	}
	other := src()
	other.items[3].seed ^= 1 << 20
	if got := pack(func(*writer.Options) {}, other); got.digest == want.digest {
		t.Fatal("other payloads have the same digest")
	}
}
