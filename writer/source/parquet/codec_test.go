package parquet

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/snappy"
)

// TestSnappyStream accepts and refuses what the block decoder does.
func TestSnappyStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		raw := make([]byte, rng.IntN(200_000))
		period := 1 + rng.IntN(300)
		for i := range raw {
			raw[i] = byte(rng.Uint32())
			if i >= period && rng.IntN(10) > round%10 {
				raw[i] = raw[i-period]
			}
		}
		stored := snappy.Encode(nil, raw)
		got := make([]byte, len(raw))
		if err := snappyStream(got, bufio.NewReader(bytes.NewReader(stored))); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("round %d, %d bytes: %v", round, len(raw), err)
		}
		if err := snappyStream(make([]byte, len(raw)+1), bufio.NewReader(bytes.NewReader(stored))); err == nil {
			t.Fatal("another length is taken")
		}
		if len(raw) == 0 {
			continue
		}
		bad := bytes.Clone(stored)
		bad[rng.IntN(len(bad))] ^= byte(1 + rng.IntN(255))
		want, wantErr := snappy.Decode(nil, bad)
		err := snappyStream(got, bufio.NewReader(bytes.NewReader(bad)))
		if wantErr == nil && len(want) == len(raw) && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("round %d: %v where the block decoder takes it", round, err)
		}
		if wantErr != nil && err == nil {
			t.Fatalf("round %d: taken where the block decoder says %v", round, wantErr)
		}
		if err := snappyStream(got, bufio.NewReader(bytes.NewReader(stored[:rng.IntN(len(stored))]))); err == nil {
			t.Fatal("a cut block is taken")
		}
	}
}

// TestDecompress: every codec returns what was stored and accepts nothing else.
func TestDecompress(t *testing.T) {
	raw := bytes.Repeat([]byte("some text that comes again, "), 500)
	for _, codec := range []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Brotli, compress.Codecs.Zstd, lz4Raw} {
		c, err := compress.GetCodec(codec)
		if err != nil {
			t.Fatal(err)
		}
		stored := bytes.Clone(c.Encode(make([]byte, c.CompressBound(int64(len(raw)))), raw))
		for want, size := range map[bool]int{true: len(raw), false: len(raw) - 1} {
			dst := make([]byte, size)
			if err := decompress(codec, dst, stored); (err == nil) != want || want && !bytes.Equal(dst, raw) {
				t.Errorf("%v into %d bytes: %v", codec, size, err)
			}
		}
		if decompress(codec, make([]byte, len(raw)+1), stored) == nil || decompress(codec, make([]byte, len(raw)), stored[:len(stored)/2]) == nil {
			t.Errorf("%v: another length, or half of it, is taken", codec)
		}
		if codec == lz4Raw {
			hadoop := append([]byte{0, 0, byte(len(raw) >> 8), byte(len(raw)), 0, 0, byte(len(stored) >> 8), byte(len(stored))}, stored...)
			for _, in := range [][]byte{hadoop, stored} {
				dst := make([]byte, len(raw))
				if err := decompress(compress.Codecs.Lz4, dst, in); err != nil || !bytes.Equal(dst, raw) {
					t.Errorf("lz4 as Hadoop frames it: %v", err)
				}
			}
		}
	}
	if decompress(compress.Codecs.Lzo, make([]byte, 1), []byte{1}) == nil || knownCodec(99) == nil {
		t.Error("an unknown codec is taken")
	}
}

// TestExpands: what a codec's bytes can decode to at most is never less than what they do decode
// to, and a claim beyond it is refused before memory is taken.
func TestExpands(t *testing.T) {
	codecs := []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Brotli, compress.Codecs.Zstd, lz4Raw}
	for name, raw := range map[string][]byte{
		"nothing": {}, "a byte": {7}, "zeros": make([]byte, 5<<20), "text": bytes.Repeat([]byte("some text, "), 100_000),
	} {
		for _, codec := range codecs {
			c, err := compress.GetCodec(codec)
			if err != nil {
				t.Fatal(err)
			}
			stored := bytes.Clone(c.Encode(nil, raw))
			if err := expands(codec, stored, int64(len(raw))); err != nil && len(raw) > 0 {
				t.Errorf("%s, %v: %v", name, codec, err)
			}
			if err := expands(codec, stored, int64(len(raw))*256+1<<30); err == nil {
				t.Errorf("%s, %v: %d bytes claim to be more than 1 GiB", name, codec, len(stored))
			}
			for cut := range min(len(stored), 100) { // truncated data proves less, and nothing panics
				_ = expands(codec, stored[:cut], 1<<30)
			}
		}
	}
}
