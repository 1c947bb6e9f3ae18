package serve

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Protocol is the version of the conversation; both ends must speak the same
// (PROTOCOL.md).
const Protocol = 2

// magic begins the fields of HELLO: "SHRDSRV1".
const magic = uint64('S') | 'H'<<8 | 'R'<<16 | 'D'<<24 | 'S'<<32 | 'R'<<40 | 'V'<<48 | '1'<<56

const (
	frameSize = 64
	// maxBody is the largest body that either end accepts. A START with a ledger of some thousand
	// blocks is far below it.
	maxBody = 4 << 20
)

// kind is the kind of a frame.
type kind uint16

const (
	kindHello     kind = 1
	kindInfo      kind = 2
	kindStarted   kind = 3
	kindSegment   kind = 4
	kindRetire    kind = 5
	kindBatch     kind = 6
	kindEnd       kind = 7
	kindSample    kind = 8
	kindError     kind = 9
	kindHeartbeat kind = 10

	kindOpen    kind = 33
	kindStart   kind = 34
	kindNext    kind = 35
	kindRelease kind = 36
	kindGet     kind = 37
	kindStop    kind = 38

	// Of peers of a rank.
	kindPeers kind = 39
	kindJoin  kind = 40
	kindBye   kind = 41
	kindLeave kind = 42
)

// Flags of BATCH, GET and HEARTBEAT.
const (
	flagLast   = 1 // BATCH: the last that begins in its epoch
	flagLedger = 2 // BATCH: the ledger changed
	flagKey    = 1 // GET: by key
	flagPeers  = 1 // HEARTBEAT: of a wait for other peers
)

// frame is one frame, its body apart.
type frame [frameSize]byte

func newFrame(k kind, flags uint16, body int) (f frame) {
	binary.LittleEndian.PutUint16(f[0:], uint16(k))
	binary.LittleEndian.PutUint16(f[2:], flags)
	binary.LittleEndian.PutUint32(f[4:], uint32(body))
	return f
}

func (f *frame) kind() kind        { return kind(binary.LittleEndian.Uint16(f[0:])) }
func (f *frame) flags() uint16     { return binary.LittleEndian.Uint16(f[2:]) }
func (f *frame) body() uint32      { return binary.LittleEndian.Uint32(f[4:]) }
func (f *frame) u32(at int) uint32 { return binary.LittleEndian.Uint32(f[at:]) }
func (f *frame) u64(at int) uint64 { return binary.LittleEndian.Uint64(f[at:]) }

// set32 and set64 put a field and return the frame, so that a frame is one expression.
func (f frame) set32(at int, v uint32) frame {
	binary.LittleEndian.PutUint32(f[at:], v)
	return f
}

func (f frame) set64(at int, v uint64) frame {
	binary.LittleEndian.PutUint64(f[at:], v)
	return f
}

// check refuses frames that no parent sends.
func (f *frame) check() error {
	switch k := f.kind(); k {
	case kindOpen, kindStart, kindGet:
	case kindNext, kindRelease, kindStop:
		if f.body() != 0 {
			return protocolError(fmt.Sprintf("a frame of kind %d with a body", k))
		}
	default:
		return protocolError(fmt.Sprintf("a frame of kind %d", k))
	}
	if f.body() > maxBody {
		return protocolError(fmt.Sprintf("a body of %d bytes", f.body()))
	}
	return nil
}

// protocolError describes what the parent did that this version does not understand.
type protocolError string

func (e protocolError) Error() string {
	return fmt.Sprintf("%s: the program at the other end speaks another protocol than version %d: use package and binary of one version", string(e), Protocol)
}

// in puts a region's place into a frame.
func (r *region) in(f frame) frame {
	return f.set32(16, r.segment).set64(24, r.offset).set64(32, uint64(len(r.data)))
}

// absent is the size of a payload that is not there.
const absent = -1

// putPair writes an offset and a size.
func putPair(dst []byte, at, size int) {
	binary.LittleEndian.PutUint64(dst, uint64(at))
	binary.LittleEndian.PutUint64(dst[8:], uint64(size))
}

// align rounds up to a multiple of a power of two.
func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// maxRegion keeps sums of sizes far from overflow.
const maxRegion = math.MaxInt64 / 4
