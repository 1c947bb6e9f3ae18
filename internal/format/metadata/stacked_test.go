package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// stackedShard returns a shard of one block of two samples, and its index: a/8 and a/9 with the
// field x.npy, arrays of two 16-bit numbers.
func stackedShard(t testing.TB, stored bool) (shard, tail []byte, ix *ShardIndex) {
	t.Helper()
	l := &stacked.Layout{Fields: []stacked.Field{{Name: "x.npy", DType: "<u2", Shape: []int64{2}}}}
	width := 0
	if stored {
		width = 4
	}
	b, cuts, payloads := stacked.NewBlock(nil, l, 0, 2, width)
	for k, row := range [][]uint16{{1, 2}, {3, 0xabcd}} {
		out := b.Row(0, k)
		binary.LittleEndian.PutUint16(out, row[0])
		binary.LittleEndian.PutUint16(out[2:], row[1])
	}
	var build IndexBuilder
	ranges, keys := samplekey.Ranges{{Prefix: "a/", First: 8, Digits: 1, Count: 2}}, []string(nil)
	if stored {
		ranges, keys = nil, []string{"a/8", "b/yy"}
		b.SetKey(0, keys[0])
		b.SetKey(1, keys[1])
	}
	if err := build.AddRows(l, 2, ranges, keys, nil); err != nil {
		t.Fatal(err)
	}
	enc := codec.NewEncoder(codec.LevelDefault)
	defer enc.Close()
	frame, storedAs, err := enc.AppendFrame(nil, b.Buf, cuts, payloads)
	if err != nil {
		t.Fatal(err)
	}
	build.AddRow(format.Row{Stored: uint32(len(frame)), Decoded: uint32(len(b.Buf)), Samples: 2, CRC: codec.Checksum(frame), Codec: storedAs})
	var h ShardHasher
	h.Add(format.BlockHash(b.Buf))
	h.AddKeys(l, ranges)
	ix = build.Finish(format.Metadata{"content": h.Sum().String()})
	if tail, err = AppendTail(nil, ix, false); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(frame, EndOfArchive(false), tail), tail, ix
}

// TestStackedShard reads a stacked shard back, with keys of both kinds.
func TestStackedShard(t *testing.T) {
	for _, stored := range []bool{false, true} {
		shard, tail, _ := stackedShard(t, stored)
		parsed, need, err := ParseTail(tail, int64(len(shard)))
		if err != nil || need != 0 {
			t.Fatal(need, err)
		}
		off, n := parsed.Cold()
		ix, err := parsed.DecodeCold(shard[off : off+n])
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"a/8", "a/9"}
		if stored {
			want[1] = "b/yy"
		}
		if keys := ix.Keys.Slice(); !slices.Equal(keys, want) || (ix.Keys.Ranges() == nil) != stored {
			t.Fatalf("keys %q", keys)
		}
		dec := codec.NewDecoder(true)
		defer dec.Close()
		decoded, err := dec.Decode(nil, shard[:ix.Rows[0].Stored], ix.Rows[0])
		if err != nil {
			t.Fatal(err)
		}
		var b stacked.Block
		if err := stacked.OpenBlock(&b, decoded, ix.Layout, 0, 2, !stored); err != nil {
			t.Fatal(err)
		}
		if row := b.Row(0, 1); !bytes.Equal(row, []byte{3, 0, 0xcd, 0xab}) {
			t.Errorf("row %x", row)
		}
		if size := ix.Sizes[0].At(1); size != uint64(len(b.AppendField(nil, 0, 1))) {
			t.Errorf("a field of %d bytes", size)
		}
		check := NewBlockChecker(ix.Cursors([]int{0})[0], 2)
		if err := errors.Join(check.Write(decoded[:100]), check.Write(decoded[100:]), check.End()); err != nil {
			t.Error(err)
		}
	}
}

// TestLayoutRefused refuses layouts that no block can have.
func TestLayoutRefused(t *testing.T) {
	for name, f := range map[string][]stacked.Field{
		"no fields":    {},
		"no name":      {{Name: "", DType: "<u2"}},
		"reserved":     {{Name: "__key__.npy", DType: "<u2"}},
		"reserved too": {{Name: "__key__", DType: "<u2"}},
		"one member":   {{Name: "x", DType: "<u2"}, {Name: "x.npy", DType: "<u2"}},
		"order":        {{Name: "b.npy", DType: "<u2"}, {Name: "a.npy", DType: "<u2"}},
		"twice":        {{Name: "b.npy", DType: "<u2"}, {Name: "b.npy", DType: "<u2"}},
		"object":       {{Name: "x.npy", DType: "|O"}},
		"big-endian":   {{Name: "x.npy", DType: ">u2"}},
		"text":         {{Name: "x.npy", DType: "<U4"}},
		"no elements":  {{Name: "x.npy", DType: "<u2", Shape: []int64{2, 0}}},
		"negative":     {{Name: "x.npy", DType: "<u2", Shape: []int64{-1}}},
		"large":        {{Name: "x.npy", DType: "<u2", Shape: []int64{format.MaxFrame}}},
		"overflow":     {{Name: "x.npy", DType: "<u8", Shape: []int64{1 << 24, 1 << 24, 1 << 24}}},
		"together":     {{Name: "a.npy", DType: "|u1", Shape: []int64{1 << 23}}, {Name: "b.npy", DType: "|u1", Shape: []int64{1<<23 + 1}}},
		"dimensions":   {{Name: "x.npy", DType: "<u2", Shape: slices.Repeat([]int64{1}, 64)}},
		"with headers": {{Name: "x.npy", DType: "|u1", Shape: []int64{format.MaxFrame - 512}}},
	} {
		l := &stacked.Layout{Fields: f}
		if err := l.Check(); !errors.Is(err, format.ErrName) && !errors.Is(err, format.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		r := section.Reader{Src: appendLayout(nil, l)}
		if _, err := readLayout(&r); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s, decoded: %v", name, err)
		}
	}
	r := section.Reader{Src: binary.LittleEndian.AppendUint64(nil, 2)}
	if _, err := readLayout(&r); !errors.Is(err, format.ErrVersion) {
		t.Errorf("another kind: %v", err)
	}
}

// listed returns the keys of ranges one by one.
func listed(rs samplekey.Ranges) (keys []string) {
	for i := range rs {
		for k := range rs[i].Count {
			keys = append(keys, fmt.Sprintf("%s%0*d", rs[i].Prefix, int(rs[i].Digits), rs[i].First+k))
		}
	}
	return keys
}

// TestKeyRanges compares ranges with the list of their keys: those drawn at random share prefixes,
// lengths and numbers that outgrow their digits.
func TestKeyRanges(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	shared := 0
	for range 3000 {
		var rs samplekey.Ranges
		for range 1 + rng.IntN(4) {
			rs = append(rs, samplekey.Range{Prefix: pick("", "a", "a1", "a10", "a0", "b/"), First: uint64(rng.IntN(120)), Digits: uint8(1 + rng.IntN(4)), Count: uint64(1 + rng.IntN(120))})
		}
		keys := listed(rs)
		seen := map[string]bool{}
		twice := false
		for i, k := range keys {
			if got := string(rs.AppendKey(nil, uint64(i))); got != k {
				t.Fatalf("%+v: key %d is %q, not %q", rs, i, got, k)
			}
			if at, ok := rs.Find(k); !ok || int(at) != slices.Index(keys, k) {
				t.Fatalf("%+v: %q is at %d, %v", rs, k, at, ok)
			}
			twice = twice || seen[k]
			seen[k] = true
		}
		if lo, hi := rs.Ends(); lo != slices.Min(keys) || hi != slices.Max(keys) {
			t.Fatalf("%+v: from %q to %q", rs, lo, hi)
		}
		k, got := rs.Shared()
		if got != twice || got && strings.Count("\n"+strings.Join(keys, "\n\n")+"\n", "\n"+k+"\n") < 2 {
			t.Fatalf("%+v: shared %q, %v, not %v", rs, k, got, twice)
		}
		if twice {
			shared++
		}
		for _, k := range []string{"a", "a01", "a1x", "c5", "", "00", "a-1", "a+1"} {
			if _, ok := rs.Find(k); ok != seen[k] {
				t.Fatalf("%+v: %q found: %v", rs, k, ok)
			}
		}
		var again samplekey.Ranges
		for _, k := range keys {
			again.Add(k)
		}
		if !slices.Equal(listed(again), keys) || !again.Numbered() {
			t.Fatalf("%+v became %+v", rs, again)
		}
		r := section.Reader{Src: appendRanges(nil, rs)}
		back, err := readRanges(&r, uint64(len(keys)))
		if err != nil || !slices.Equal(back, rs) {
			t.Fatalf("%+v became %+v: %v", rs, back, err)
		}
	}
	if shared < 100 || shared > 2900 {
		t.Errorf("%d of 3000 share keys", shared)
	}
}

// TestKeyRangesRefused refuses ranges that are no keys, or not those of the samples.
func TestKeyRangesRefused(t *testing.T) {
	for name, r := range map[string]samplekey.Range{
		"none":      {Prefix: "a", Digits: 1},
		"too many":  {Prefix: "a", Digits: 1, Count: 11},
		"too few":   {Prefix: "a", Digits: 1, Count: 9},
		"overflow":  {Prefix: "a", Digits: 1, First: 1<<64 - 3, Count: 10},
		"digits":    {Prefix: "a", Digits: 21, Count: 10},
		"no digits": {Prefix: "a", Count: 10},
		"dot":       {Prefix: "a.", Digits: 1, Count: 10},
		"path":      {Prefix: "../", Digits: 1, Count: 10},
		"absolute":  {Prefix: "/a", Digits: 1, Count: 10},
		"long":      {Prefix: strings.Repeat("a", format.MaxName), Digits: 1, Count: 10},
	} {
		src := section.Reader{Src: appendRanges(nil, samplekey.Ranges{r})}
		if _, err := readRanges(&src, 10); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// asTar returns a block of rows as an ordinary shard has it.
func asTar(block []byte, ix *ShardIndex, first, n int) (out []byte, err error) {
	var b stacked.Block
	if err := stacked.OpenBlock(&b, block, ix.Layout, uint64(first), n, ix.Keys.Ranges() != nil); err != nil {
		return nil, err
	}
	for k := range n {
		out = b.AppendTar(out, k, []byte(ix.Keys.At(first+k)))
	}
	return out, nil
}
