package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// TestRawFrame: payloads of up to 128 KiB lie whole in one raw block, wherever members fall; the
// frame is valid zstd.
func TestRawFrame(t *testing.T) {
	d := NewDecoder(true)
	defer d.Close()
	for seed := range uint64(20) {
		var b tarblock.Builder
		for i := range 40 {
			n := []int{0, 1, 511, 512, 130_000, 131_072, 131_073, 70_000, 400_000, 131_072 - 512, 131_072 - 511}[(int(seed)*7+i*(1+int(seed)%3))%11]
			copy(b.Buf[b.Member(fmt.Sprintf("%d.bin", i), n):], incompressible(seed, n))
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
		for _, codec := range []format.Codec{format.CodecRaw, format.CodecZstd} {
			row := format.Row{Stored: uint32(len(frame)), Decoded: uint32(len(b.Buf)), Codec: codec}
			got, err := d.Decode([]byte("before"), frame, row)
			if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], b.Buf) {
				t.Fatalf("seed %d: as codec %v: %v", seed, codec, err)
			}
		}
		frame[len(frame)-1] ^= 1
		for _, codec := range []format.Codec{format.CodecRaw, format.CodecZstd} {
			if _, err := d.Decode(nil, frame, format.Row{Stored: uint32(len(frame)), Decoded: uint32(len(b.Buf)), Codec: codec}); err == nil {
				t.Errorf("codec %v: wrong xxh64 is not seen", codec)
			}
		}
	}
}

func incompressible(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
	return p
}
