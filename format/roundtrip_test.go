package format

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
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
				s := pack(t, samples, packOptions{Block: 64 << 10, Plain: plain, Meta: Metadata{"tool": "x", "": "empty key"}})
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
	d := NewDecoder(false)
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
			at += gap + n + int(padding(int64(n)))
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
	if err := b.AddSample("k", []FieldSize{{Name: "txt"}}, nil); err != nil {
		t.Fatal(err)
	}
	b.AddRow(Row{Stored: 512, Decoded: 512, Samples: 1})
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
	if at < 0 || p[at+4]&flagCritical != 0 {
		t.Fatal("no section, or one that others must know")
	}
}

// TestBigBlocks: blocks of several frames, on both sides of the limits for Single_Segment and for
// frames.
func TestBigBlocks(t *testing.T) {
	for _, n := range []int{maxSingle - 1024, maxSingle + 1, MaxFrame - 512, MaxFrame - 511, 2*MaxFrame + 777} {
		for _, text := range []bool{false, true} {
			if testing.Short() && n > maxSingle+1 {
				continue
			}
			data := string(noise(9, n))
			if text {
				data = strings.Repeat(string(words(9, 100_000)), n/100_000+1)[:n]
			}
			samples := []testSample{one("a", "x", "before"), one("big", "bin", data), one("c", "x", "after")}
			s := pack(t, samples, packOptions{Level: LevelFastest})
			got, err := checkShard(s.object())
			if err != nil {
				t.Fatalf("%d bytes, text %v: %v", n, text, err)
			}
			same(t, got, samples)
			for i, r := range s.Index.Rows {
				if want := map[bool]Codec{false: CodecRaw, true: CodecZstd}[text]; r.Codec != want && r.Decoded > 1<<20 {
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
	var hash Hash
	for _, level := range []Level{LevelFastest, LevelDefault, LevelBetter, LevelBest} {
		want := pack(t, samples, packOptions{Level: level})
		got, err := checkShard(want.object())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, samples)
		if level == LevelFastest {
			hash = want.Hash
		} else if want.Hash != hash {
			t.Errorf("level %v changes the identity", level)
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				e := NewEncoder(level)
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
	frame := func(data []byte) *BlockBuilder {
		var b BlockBuilder
		for i := 0; i*50_000 < len(data); i++ {
			p := data[i*50_000 : min(len(data), (i+1)*50_000)]
			copy(b.Buf[b.Member(fmt.Sprintf("%d.bin", i), len(p)):], p)
		}
		return &b
	}
	for _, level := range []Level{LevelFastest, LevelDefault, LevelBetter, LevelBest} {
		e := NewEncoder(level)
		defer e.Close()
		for want, data := range map[Codec][]byte{CodecRaw: noise(3, 1<<20), CodecZstd: words(3, 1<<20)} {
			b := frame(data)
			out, codec, err := e.AppendFrame(nil, b.Buf, b.Cuts, b.Payloads)
			if err != nil || codec != want {
				t.Errorf("level %v: codec %v, want %v, error %v", level, codec, want, err)
			}
			if codec == CodecZstd && len(out) > len(b.Buf)-len(b.Buf)/32 {
				t.Errorf("level %v: %d of %d bytes is no saving", level, len(out), len(b.Buf))
			}
		}
		if _, _, err := e.AppendFrame(nil, make([]byte, MaxFrame+1), nil, nil); err == nil {
			t.Error("frame above MaxFrame was stored")
		}
	}
}

// TestRawFrame: payloads of up to 128 KiB lie whole in one raw block, wherever members fall; the
// frame is valid zstd.
func TestRawFrame(t *testing.T) {
	d := NewDecoder(true)
	defer d.Close()
	for seed := range uint64(20) {
		var b BlockBuilder
		for i := range 40 {
			n := []int{0, 1, 511, 512, 130_000, 131_072, 131_073, 70_000, 400_000, 131_072 - 512, 131_072 - 511}[(int(seed)*7+i*(1+int(seed)%3))%11]
			copy(b.Buf[b.Member(fmt.Sprintf("%d.bin", i), n):], noise(seed, n))
		}
		frame := AppendRawFrame(nil, b.Buf, b.Cuts, b.Payloads)
		pieces, _, err := parseRawFrame(nil, frame, len(b.Buf))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range b.Payloads {
			end := len(b.Buf)
			if i+1 < len(b.Cuts) {
				end = b.Cuts[i+1]
			}
			if end-p > rawBlock {
				continue
			}
			whole := slices.ContainsFunc(pieces, func(r rawPiece) bool { return r.at <= p && end <= r.at+r.n })
			if !whole {
				t.Errorf("seed %d: payload %d of %d bytes is cut", seed, i, end-p)
			}
		}
		for _, codec := range []Codec{CodecRaw, CodecZstd} {
			row := Row{Stored: uint32(len(frame)), Decoded: uint32(len(b.Buf)), Codec: codec}
			got, err := d.Decode([]byte("before"), frame, row)
			if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], b.Buf) {
				t.Fatalf("seed %d: as codec %v: %v", seed, codec, err)
			}
		}
		frame[len(frame)-1] ^= 1
		for _, codec := range []Codec{CodecRaw, CodecZstd} {
			if _, err := d.Decode(nil, frame, Row{Stored: uint32(len(frame)), Decoded: uint32(len(b.Buf)), Codec: codec}); err == nil {
				t.Errorf("codec %v: wrong xxh64 is not seen", codec)
			}
		}
	}
}
