package codec

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Level is how hard an Encoder tries. It changes the stored bytes, and no cut, hash or order.
type Level int

// The levels of klauspost/compress/zstd.
const (
	LevelDefault Level = iota
	LevelFastest
	LevelBetter
	LevelBest
)

var levelNames = [...]string{LevelDefault: "default", LevelFastest: "fastest", LevelBetter: "better", LevelBest: "best"}

func (l Level) String() string { return levelNames[l] }

// ParseLevel returns the level of that name.
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("unknown level %q: use one of fastest, default, better, best", s)
}

func (l Level) zstd() zstd.EncoderLevel {
	switch l {
	case LevelFastest:
		return zstd.SpeedFastest
	case LevelBetter:
		return zstd.SpeedBetterCompression
	case LevelBest:
		return zstd.SpeedBestCompression
	}
	return zstd.SpeedDefault
}

// smallFrame is the largest frame of the small encoder, which takes 3 to 7 MiB (best: 38) instead
// of 17 to 52.
const smallFrame = 2 << 20

// Encoder compresses frames. It is for one goroutine. Its output depends on the level and the input
// alone.
type Encoder struct {
	level  Level
	small  *zstd.Encoder // frames up to 2 MiB, which are nearly all: Single_Segment, and little memory
	single *zstd.Encoder // frames up to 8 MiB: Single_Segment; made on first use
	window *zstd.Encoder // larger ones: a window of 8 MiB; made on first use
	probe  *zstd.Encoder // estimates first what compression saves
	buf    []byte
}

// NewEncoder returns an Encoder. The caller must Close it.
func NewEncoder(level Level) *Encoder {
	return &Encoder{
		level: level, small: newZstd(level, true, zstd.WithWindowSize(smallFrame), zstd.WithLowerEncoderMem(true)),
		// The two upper levels also save where bytes are skewed and nothing repeats: their probe
		// must see that.
		probe: newZstd(LevelFastest, true, zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true),
			zstd.WithAllLitEntropyCompression(level >= LevelBetter)),
	}
}

func newZstd(level Level, single bool, more ...zstd.EOption) *zstd.Encoder {
	z, err := zstd.NewWriter(nil,
		append([]zstd.EOption{zstd.WithEncoderLevel(level.zstd()), zstd.WithEncoderConcurrency(1),
			zstd.WithSingleSegment(single), zstd.WithWindowSize(MaxSingle), zstd.WithEncoderCRC(true)}, more...)...)
	if err != nil {
		panic("format: zstd encoder options: " + err.Error()) // constant options
	}
	return z
}

// Close frees the encoder's memory. The Encoder cannot be used afterwards.
func (e *Encoder) Close() {
	for _, z := range []*zstd.Encoder{e.small, e.single, e.window, e.probe} {
		if z != nil {
			z.Close()
		}
	}
	*e = Encoder{}
}

// AppendFrame appends src, at most MaxFrame bytes, as one frame: compressed, or as raw blocks if
// compression would save less than a 32nd of it. For cuts and payloads see AppendRawFrame.
func (e *Encoder) AppendFrame(dst, src []byte, cuts, payloads []int) ([]byte, format.Codec, error) {
	dst, ok, err := e.Compress(dst, src, cuts, payloads)
	if err != nil || ok {
		return dst, format.CodecZstd, err
	}
	return AppendRawFrame(dst, src, cuts, payloads), format.CodecRaw, nil
}

// Compress appends src as AppendFrame does if it is worth compressing. If not, it appends nothing,
// and ok is false: the caller stores the raw frame, without a copy if it likes.
func (e *Encoder) Compress(dst, src []byte, cuts, payloads []int) (_ []byte, ok bool, err error) {
	if len(src) > format.MaxFrame {
		return dst, false, fmt.Errorf("%w: frame of %d bytes", format.ErrTooLarge, len(src))
	}
	if e.hopeless(src, cuts, payloads) {
		return dst, false, nil
	}
	z := e.small
	switch {
	case len(src) > MaxSingle:
		if e.window == nil {
			e.window = newZstd(e.level, false)
		}
		z = e.window
	case len(src) > smallFrame:
		if e.single == nil {
			e.single = newZstd(e.level, true)
		}
		z = e.single
	}
	at := len(dst)
	dst = z.EncodeAll(src, dst)
	if stored := len(dst) - at; stored > len(src)-len(src)/32 {
		return dst[:at], false, nil
	}
	return dst, true, nil
}

// hopeless compresses eight evenly spread pieces of 4 KiB with the fastest level. Without it the
// default level takes 1 ms to find that 1 MiB of JPEG does not compress, twice the time of hashing
// it, and the best level 80 ms. The pieces lie within payloads, so that tar headers do not look
// like savings; if payloads are too small for that, the level itself must try.
func (e *Encoder) hopeless(src []byte, cuts, payloads []int) bool {
	const pieces, piece = 8, 4 << 10
	const limit = pieces*piece - pieces*piece/32 // more than this is hopeless
	const most = piece + 64                      // of a piece that does not compress: a frame around it
	if len(src) < 4*pieces*piece {
		return false
	}
	stored := 0
	for i := range pieces {
		at := (2*i + 1) * len(src) / (2 * pieces)
		begin, end := 0, len(src)
		if n := sort.SearchInts(payloads, at+1); n > 0 {
			begin = payloads[n-1]
			if n < len(cuts) {
				end = cuts[n]
			}
		} else if len(payloads) > 0 {
			return false // the first member begins after this place: not one of our frames
		}
		if end -= tarblock.RecordLen; end-begin < piece { // up to 511 bytes are padding
			return false
		}
		at = min(at, end-piece)
		e.buf = e.probe.EncodeAll(src[at:at+piece], e.buf[:0])
		stored += len(e.buf)
		if stored+(pieces-1-i)*most <= limit { // text is decided by its first piece
			return false
		}
	}
	return stored > limit
}

// Decoder decodes frames. It is for one goroutine.
type Decoder struct {
	z        *zstd.Decoder
	checkXXH bool
	// pieces of the last raw frame
	pieces []rawPiece
}

// NewDecoder returns a Decoder, which the caller must Close. checkXXH also compares each frame's
// own xxh64, which is superfluous after CheckFrame.
func NewDecoder(checkXXH bool) *Decoder {
	z, err := newReader(zstd.WithDecoderConcurrency(1), zstd.IgnoreChecksum(!checkXXH),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(1<<30), zstd.WithDecoderMaxWindow(MaxSingle*2))
	if err != nil {
		panic("format: zstd decoder options: " + err.Error()) // constant options
	}
	return &Decoder{z: z, checkXXH: checkXXH}
}

// Close frees the decoder's memory.
func (d *Decoder) Close() { d.z.Close() }

// CheckFrame compares a frame's stored bytes with its row. Call it before any other use of the
// bytes.
func CheckFrame(stored []byte, row format.Row) error {
	if len(stored) != int(row.Stored) {
		return damage.Errorf("frame has %d bytes, its row says %d", len(stored), row.Stored)
	}
	return CheckFrameSum(Checksum(stored), row)
}

// CheckFrameSum is CheckFrame for row.Stored bytes whose checksum was computed while they were
// read.
func CheckFrameSum(sum uint32, row format.Row) error {
	if sum != row.CRC {
		return damage.Errorf("checksum mismatch: CRC-32C is %08x, the index says %08x", sum, row.CRC)
	}
	return nil
}

// Decode appends the frame's content, row.Decoded bytes, to dst. It allocates nothing if dst has
// room for DecodeRoom(row) more bytes.
func (d *Decoder) Decode(dst, stored []byte, row format.Row) ([]byte, error) {
	if row.Decoded > format.MaxFrame {
		return dst, fmt.Errorf("%w: frame decodes to %d bytes", format.ErrTooLarge, row.Decoded)
	}
	at := len(dst)
	switch row.Codec {
	case format.CodecBytes:
		dst = append(dst, stored...)
	case format.CodecRaw:
		pieces, sum, err := parseRawFrame(d.pieces[:0], stored, int(row.Decoded))
		d.pieces = pieces
		if err != nil {
			return dst, err
		}
		for _, p := range pieces {
			dst = append(dst, stored[p.pos:p.pos+p.n]...)
		}
		if d.checkXXH && uint32(xxhash.Sum64(dst[at:])) != sum {
			return dst[:at], damage.Errorf("xxh64 mismatch in a frame of raw blocks")
		}
	case format.CodecZstd:
		if uint64(row.Decoded) > MaxExpand*uint64(row.Stored) {
			return dst, damage.Errorf("frame of %d bytes cannot decode to %d", row.Stored, row.Decoded)
		}
		if room := DecodeRoom(row); cap(dst)-at < room {
			dst = append(make([]byte, 0, at+room), dst...)
		}
		// The capacity limits the decoder: a frame that decodes to more than its row has is
		// refused.
		out, err := d.z.DecodeAll(stored, dst[:at:at+DecodeRoom(row)])
		if err != nil {
			return dst[:at], fmt.Errorf("%w: %w", format.ErrCorrupt, zstdError(err))
		}
		dst = out
	default:
		return dst, fmt.Errorf("%w: codec %d", format.ErrVersion, row.Codec)
	}
	if len(dst)-at != int(row.Decoded) {
		return dst[:at], damage.Errorf("frame decodes to %d bytes, its row says %d", len(dst)-at, row.Decoded)
	}
	return dst, nil
}

// DecodeRoom is the capacity that Decode needs for a row: the decoder copies in steps of up to 16
// bytes.
func DecodeRoom(row format.Row) int { return int(row.Decoded) + 16 }

// zstdError replaces errors of the decoder that mean nothing to a user.
func zstdError(err error) error {
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return errors.New("zstd frame decodes to more than its row says")
	}
	return errors.New("zstd: " + strings.TrimPrefix(err.Error(), "zstd: "))
}
