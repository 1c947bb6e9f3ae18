package metadata

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// corpora are shards that between them have every part of the format.
func corpora() map[string][]testSample {
	c := map[string][]testSample{
		"empty":  nil,
		"single": {one("k", "", "")},
		"small":  small(),
		"zero":   {one("a", "x", "", "y", ""), one("b", "x", "", "y", "")},
	}
	var text, shapes, images, attrs []testSample
	for i := range 3000 {
		text = append(text, one(fmt.Sprintf("doc/%06d", i), "txt", string(words(uint64(i), 100+i%700))))
		s := one(fmt.Sprintf("s/%06d", i), "a", "1")
		for j := range i % 5 {
			s.Fields = append(s.Fields, testField{fmt.Sprintf("f%d", j), make([]byte, i%513)})
		}
		shapes = append(shapes, s)
		a := one(fmt.Sprintf("%x", i), "b", "")
		if i%3 > 0 {
			a.Attrs = append(a.Attrs, number("f", []float64{math.Inf(-1), -0.25, 1e300}[i%3]))
		}
		if i%2 > 0 {
			a.Attrs = append(a.Attrs, integer("i", int64(i)<<uint(i%60)-1<<50))
		}
		if i >= 10 {
			a.Attrs = append(a.Attrs, label("l", fmt.Sprintf("class %d", i%300)))
		}
		if i == 2999 {
			a.Attrs = append(a.Attrs, integer("z", math.MinInt64))
		}
		attrs = append(attrs, a)
	}
	for i := range 12 {
		images = append(images, one(fmt.Sprintf("%03d", i), "jpg", string(noise(uint64(i), 1000+i*40_000)), "txt", "caption"))
	}
	c["text"], c["shapes"], c["attrs"], c["images"] = text, shapes, attrs, images
	return c
}

func TestRoundTrip(t *testing.T) {
	for name, samples := range corpora() {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain=%v", name, plain), func(t *testing.T) {
				t.Parallel()
				s := pack(t, samples, packOptions{Block: 64 << 10, Plain: plain, Meta: format.Metadata{"tool": "x", "": "empty key"}})
				var got []testSample
				var err error
				if plain {
					got, err = checkSidecar(s.Data, s.Tail)
				} else {
					got, err = checkShard(s.object())
				}
				if err != nil {
					t.Fatal(err)
				}
				same(t, got, samples)
				checkOffsets(t, s, samples)
			})
		}
	}
}

// checkOffsets reads every payload at the offset that the index gives, without looking at a header.
func checkOffsets(t *testing.T, s *testShard, samples []testSample) {
	t.Helper()
	d := codec.NewDecoder(false)
	defer d.Close()
	var all []byte
	pos := uint32(0)
	for _, r := range s.Index.Rows {
		var err error
		if all, err = d.Decode(all, s.Data[pos:pos+r.Stored], r); err != nil {
			t.Fatal(err)
		}
		pos += r.Stored
	}
	size := int64(len(s.Tail))
	if !s.Plain {
		size += int64(len(s.Data))
	}
	tail, _, err := ParseTail(s.Tail, size)
	if err != nil {
		t.Fatal(err)
	}
	off, n := tail.Cold()
	off -= size - int64(len(s.Tail))
	ix, err := tail.DecodeCold(s.Tail[off : off+n])
	if err != nil {
		t.Fatal(err)
	}
	if int(tail.Samples) != len(samples) || !slices.Equal(tail.Rows, s.Index.Rows) || tail.Len != int64(len(s.Tail)) {
		t.Fatalf("tail of %d samples, %d rows, %d bytes", tail.Samples, len(tail.Rows), tail.Len)
	}
	at, member, seen := 0, 0, make([]int, len(ix.Fields))
	for i, w := range samples {
		for j, f := range ix.Shape(i) {
			gap := 512
			if ix.Gaps != nil {
				gap = int(ix.Gaps[member])
			}
			n := int(ix.Sizes[f].At(seen[f]))
			payload := all[at+gap : at+gap+n]
			if ix.Fields[f] != w.Fields[j].Name || !bytes.Equal(payload, w.Fields[j].Data) {
				t.Fatalf("sample %d: field %q of %d bytes at %d is not %q", i, ix.Fields[f], n, at+gap, w.Fields[j].Name)
			}
			at += gap + n + int(tarblock.Padding(int64(n)))
			member++
			seen[f]++
		}
	}
	if at != len(all) {
		t.Fatalf("members end at %d of %d bytes", at, len(all))
	}
}

// TestSkippedSection: the list of samples left out survives a round trip, also through readers that
// do not know it.
func TestSkippedSection(t *testing.T) {
	var b IndexBuilder
	if err := b.AddSample("k", []format.FieldSize{{Name: "txt"}}, nil); err != nil {
		t.Fatal(err)
	}
	b.AddRow(format.Row{Stored: 512, Decoded: 512, Samples: 1})
	ix := b.Finish(nil)
	ix.Skipped = bytes.Repeat([]byte("{\"reason\":\"no\"}\n"), 1000)
	p, err := AppendTail(nil, ix, true)
	if err != nil {
		t.Fatal(err)
	}
	tail, need, err := ParseTail(p, int64(len(p)))
	if err != nil || need != 0 {
		t.Fatal(need, err)
	}
	off, n := tail.Cold()
	back, err := tail.DecodeCold(p[off:][:n])
	if err != nil || !bytes.Equal(back.Skipped, ix.Skipped) {
		t.Fatalf("%d bytes, %v", len(back.Skipped), err)
	}
	if len(p) > 2000 {
		t.Fatalf("%d bytes: the list is not compressed", len(p))
	}
	at := bytes.Index(p, []byte("SKIP"))
	if at < 0 || p[at+4]&section.FlagCritical != 0 {
		t.Fatal("no section, or one that others must know")
	}
}

// TestBigBlocks: blocks of several frames, on both sides of the limits for Single_Segment and for
// frames.
func TestBigBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, n := range []int{codec.MaxSingle - 1024, codec.MaxSingle + 1, format.MaxFrame - 512, format.MaxFrame - 511, 2*format.MaxFrame + 777} {
		for _, text := range []bool{false, true} {
			data := string(noise(9, n))
			if text {
				data = strings.Repeat(string(words(9, 100_000)), n/100_000+1)[:n]
			}
			samples := []testSample{one("a", "x", "before"), one("big", "bin", data), one("c", "x", "after")}
			s := pack(t, samples, packOptions{Level: codec.LevelFastest})
			got, err := checkShard(s.object())
			if err != nil {
				t.Fatalf("%d bytes, text %v: %v", n, text, err)
			}
			same(t, got, samples)
			for i, r := range s.Index.Rows {
				if want := map[bool]format.Codec{false: format.CodecRaw, true: format.CodecZstd}[text]; r.Codec != want && r.Decoded > 1<<20 {
					t.Errorf("%d bytes, text %v: row %d has codec %v", n, text, i, r.Codec)
				}
			}
		}
	}
}

// TestLevels: every level stores the same content, and gives the same bytes from a fresh encoder,
// from a used one, and from several at once.
func TestLevels(t *testing.T) {
	samples := append(corpora()["text"][:500:500], corpora()["images"]...)
	other := corpora()["shapes"]
	var hash format.Hash
	levels := []codec.Level{codec.LevelFastest, codec.LevelDefault, codec.LevelBetter, codec.LevelBest}
	if testing.Short() {
		levels = levels[:1] // the goroutines are the same at every level
	}
	for _, level := range levels {
		want := pack(t, samples, packOptions{Level: level})
		got, err := checkShard(want.object())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, samples)
		if level == codec.LevelFastest {
			hash = want.Hash
		} else if want.Hash != hash {
			t.Errorf("level %v changes the identity", level)
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				e := codec.NewEncoder(level)
				defer e.Close()
				for range g {
					packWith(t, e, other[:1000*g], packOptions{Level: level, Block: 100_000})
				}
				again := packWith(t, e, samples, packOptions{Level: level})
				if !bytes.Equal(again.object(), want.object()) {
					t.Errorf("level %v: encoder used %d times gives other bytes", level, g)
				}
			})
		}
		wg.Wait()
	}
}

// TestCodecChoice: what compression does not shrink by a 32nd is stored raw, at every level, and
// little else.
func TestCodecChoice(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	frame := func(data []byte) *tarblock.Builder {
		var b tarblock.Builder
		for i := 0; i*50_000 < len(data); i++ {
			p := data[i*50_000 : min(len(data), (i+1)*50_000)]
			copy(b.Buf[b.Member(fmt.Sprintf("%d.bin", i), len(p)):], p)
		}
		return &b
	}
	for _, level := range []codec.Level{codec.LevelFastest, codec.LevelDefault, codec.LevelBetter, codec.LevelBest} {
		e := codec.NewEncoder(level)
		defer e.Close()
		for want, data := range map[format.Codec][]byte{format.CodecRaw: noise(3, 1<<20), format.CodecZstd: words(3, 1<<20)} {
			b := frame(data)
			out, codec, err := e.AppendFrame(nil, b.Buf, b.Cuts, b.Payloads)
			if err != nil || codec != want {
				t.Errorf("level %v: codec %v, want %v, error %v", level, codec, want, err)
			}
			if codec == format.CodecZstd && len(out) > len(b.Buf)-len(b.Buf)/32 {
				t.Errorf("level %v: %d of %d bytes is no saving", level, len(out), len(b.Buf))
			}
		}
		if _, _, err := e.AppendFrame(nil, make([]byte, format.MaxFrame+1), nil, nil); err == nil {
			t.Error("frame above MaxFrame was stored")
		}
	}
}
