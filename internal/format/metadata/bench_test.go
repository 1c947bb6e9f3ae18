package metadata

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/testdata"
)

// proseBlock is a block of about 1 MiB decoded of text samples of about 3 KB.
func proseBlock() *tarblock.Builder {
	var b tarblock.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; len(b.Buf) < 1<<20; i++ {
		n := int(3000 * math.Exp(r.NormFloat64()*0.5))
		at := r.IntN(len(testdata.Prose) - n)
		copy(b.Buf[b.Member(fmt.Sprintf("%06d.txt", i), n):], testdata.Prose[at:at+n])
	}
	return &b
}

func noiseBlock() *tarblock.Builder {
	var b tarblock.Builder
	for i := 0; len(b.Buf) < 1<<20; i++ {
		copy(b.Buf[b.Member(fmt.Sprintf("%06d.jpg", i), 100_000+i):], noise(uint64(i), 100_000+i))
	}
	return &b
}

// BenchmarkSamples: ns/sample is the figure.
func BenchmarkSamples(b *testing.B) {
	for _, foreign := range []bool{false, true} {
		b.Run(fmt.Sprintf("foreign=%v", foreign), func(b *testing.B) {
			block := proseBlock()
			it := tarblock.SampleIter{Fields: make([]format.FieldView, 0, 8)}
			b.SetBytes(int64(len(block.Buf)))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				it = tarblock.SampleIter{Walker: tarblock.Walker{Buf: block.Buf, Foreign: foreign}, Fields: it.Fields[:0]}
				for it.Next() {
					n++
				}
			}
			if it.Err() != nil {
				b.Fatal(it.Err())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/sample")
		})
	}
}

// BenchmarkDecode: a frame as a reader takes it (CRC-32C, then decoding) against DecodeAll alone.
func BenchmarkDecode(b *testing.B) {
	for name, block := range map[string]*tarblock.Builder{"text": proseBlock(), "noise": noiseBlock()} {
		e := codec.NewEncoder(codec.LevelDefault)
		frame, storedAs, err := e.AppendFrame(nil, block.Buf, block.Cuts, block.Payloads)
		if err != nil {
			b.Fatal(err)
		}
		e.Close()
		row := format.Row{Stored: uint32(len(frame)), Decoded: uint32(len(block.Buf)), CRC: codec.Checksum(frame), Codec: storedAs}
		dst := make([]byte, 0, codec.DecodeRoom(row))
		b.Run("data="+name+"/path=checked", func(b *testing.B) {
			d := codec.NewDecoder(false)
			defer d.Close()
			b.SetBytes(int64(row.Decoded))
			b.ReportAllocs()
			for b.Loop() {
				if err := codec.CheckFrame(frame, row); err != nil {
					b.Fatal(err)
				}
				if _, err := d.Decode(dst, frame, row); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("data="+name+"/path=DecodeAll", func(b *testing.B) {
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.IgnoreChecksum(true))
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			b.SetBytes(int64(row.Decoded))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.DecodeAll(frame, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncode: a frame at each level.
func BenchmarkEncode(b *testing.B) {
	for name, block := range map[string]*tarblock.Builder{"text": proseBlock(), "noise": noiseBlock()} {
		for _, level := range []codec.Level{codec.LevelFastest, codec.LevelDefault, codec.LevelBetter, codec.LevelBest} {
			b.Run(fmt.Sprintf("data=%s/level=%v", name, level), func(b *testing.B) {
				e := codec.NewEncoder(level)
				defer e.Close()
				var dst []byte
				b.SetBytes(int64(len(block.Buf)))
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if dst, _, err = e.AppendFrame(dst[:0], block.Buf, block.Cuts, block.Payloads); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(block.Buf))/float64(len(dst)), "ratio")
			})
		}
	}
}

// sizesIndex is the index of a shard of 256 MiB whose fields have lognormal sizes. No block is
// packed for it.
func sizesIndex(medians map[string]float64, sigma float64) *ShardIndex {
	r := rand.New(rand.NewPCG(3, 4))
	var ib IndexBuilder
	var total, block, inside int64
	names := slices.Sorted(maps.Keys(medians))
	for total < 256<<20 {
		key := fmt.Sprintf("%016x", r.Uint64())
		var fields []format.FieldSize
		for _, name := range names {
			n := int64(medians[name] * math.Exp(r.NormFloat64()*sigma))
			fields = append(fields, format.FieldSize{Name: name, Size: n})
			block += tarblock.MemberLen(format.JoinName(key, name), n)
		}
		if err := ib.AddSample(key, fields, nil); err != nil {
			panic(err)
		}
		if inside++; block >= 1<<20 {
			stored := block * int64(350+r.IntN(50)) / 1000
			ib.AddRow(format.Row{Stored: uint32(stored), Decoded: uint32(block), Samples: uint32(inside), CRC: r.Uint32(), Codec: format.CodecZstd})
			total += block
			block, inside = 0, 0
		}
	}
	return ib.Finish(format.Metadata{"tool": "shardtool 1.0.0", "content": strings.Repeat("0123456789abcdef", 4)})
}

// indexCorpora are the three whose figures are watched.
var indexCorpora = []struct {
	name    string
	medians map[string]float64
}{
	{"text-3KB", map[string]float64{"txt": 3000}},
	{"image-100KB", map[string]float64{"jpg": 100_000}},
	{"three-fields", map[string]float64{"jpg": 100_000, "json": 400, "txt": 120}},
}

// entropy is the cost in bytes of values drawn from a lognormal distribution of that median: that
// of the distribution, which an encoder that knew it would reach.
func entropy(median, sigma float64, n int) float64 {
	bits := math.Log2(median) + math.Log2(sigma*math.Sqrt(2*math.Pi*math.E))
	return bits * float64(n) / 8
}

// TestIndexSize holds the index, keys apart, against its goal: 1.1 times the entropy of the sizes
// and 12 bytes a block, beside the seek table (8 bytes a frame, which the zstd format asks for) and
// what every shard has once.
func TestIndexSize(t *testing.T) {
	const sigma, once = 0.5, 1000
	for _, c := range indexCorpora {
		ix := sizesIndex(c.medians, sigma)
		n := ix.Keys.Len()
		tail, err := AppendTail(nil, ix, false)
		if err != nil {
			t.Fatal(err)
		}
		want, sizes := 0.0, 0
		for f, name := range ix.Fields {
			want += entropy(c.medians[name], sigma, n)
			s := section.Column(typeSize, uint32(f), true, ix.Sizes[f].stored)
			sizes += s.StoredLen()
		}
		rows := 0
		for _, s := range rowSections(0, ix.Rows) {
			rows += s.StoredLen()
		}
		blocks := len(ix.Rows)
		names := section.Raw{}
		names.Raw = section.AppendStrings(nil, ix.Keys.stored, &names.Cuts)
		keys := names.StoredLen()
		rest := len(tail) - keys - 8*(blocks+4)
		t.Logf("%s: %d samples, %d blocks: tail %.2f bytes a sample; keys %.2f, sizes %.3f (entropy %.3f, ratio %.3f); rows %.2f bytes a block",
			c.name, n, blocks, float64(len(tail))/float64(n), float64(keys)/float64(n), float64(sizes)/float64(n), want/float64(n),
			float64(sizes)/want, float64(rows)/float64(blocks))
		if limit := 1.1*want + 12*float64(blocks) + once; float64(rest) > limit {
			t.Errorf("%s: index of %d bytes, keys and seek table apart, limit %.0f", c.name, rest, limit)
		}
	}
}

// BenchmarkIndex: writing (with its check) and reading the index of a shard of 256 MiB.
func BenchmarkIndex(b *testing.B) {
	for _, c := range indexCorpora {
		ix := sizesIndex(c.medians, 0.5)
		tail, err := AppendTail(nil, ix, false)
		if err != nil {
			b.Fatal(err)
		}
		size := int64(len(tail)) + int64(sumStored(ix.Rows)) + int64(len(codec.EndFrame))
		perSample := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ix.Keys.Len()), "ns/sample")
			b.ReportMetric(float64(len(tail))/float64(ix.Keys.Len()), "B/sample")
		}
		b.Run("data="+c.name+"/do=encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendTail(nil, ix, false); err != nil {
					b.Fatal(err)
				}
			}
			perSample(b)
		})
		b.Run("data="+c.name+"/do=hot", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ParseTail(tail, size); err != nil {
					b.Fatal(err)
				}
			}
			perSample(b)
		})
		b.Run("data="+c.name+"/do=cold", func(b *testing.B) {
			t, _, err := ParseTail(tail, size)
			if err != nil {
				b.Fatal(err)
			}
			_, n := t.Cold()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.DecodeCold(tail[:n]); err != nil {
					b.Fatal(err)
				}
			}
			perSample(b)
		})
	}
}

// BenchmarkTables: 1,000 shards of 256 blocks.
func BenchmarkTables(b *testing.B) {
	rows := make([]int, 1000)
	for i := range rows {
		rows[i] = 256
	}
	m := testManifest(rows...)
	raw := encodeTables(b, m)
	b.Run("do=encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encodeTables(b, m)
		}
	})
	b.Run("do=load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := openTables(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("do=order", func(b *testing.B) { // all that an order needs
		b.ReportAllocs()
		for b.Loop() {
			t, err := OpenTables(readFrom(raw), int64(len(raw)))
			if err != nil {
				b.Fatal(err)
			}
			for i := range t.Parts {
				if _, err := t.LoadSamples(i); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
