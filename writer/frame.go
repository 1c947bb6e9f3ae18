package writer

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
)

// frame is what a shard stores of a block, or of a part of one, and its row, which has no samples
// yet.
type frame struct {
	row format.Row
	// pieces are the stored bytes. What cannot be compressed is not copied either: its pieces lie in
	// the memory of the block, and last until the emitter is done with that. stored, when not nil, is
	// memory of the pool that they lie in.
	pieces [][]byte
	stored []byte
}

// own copies the pieces into memory of the frame.
func (f *frame) own(pool *buffers) {
	if f.stored != nil {
		return
	}
	f.stored = pool.get(int(f.row.Stored))
	for _, p := range f.pieces {
		f.stored = append(f.stored, p...)
	}
	f.pieces = [][]byte{f.stored}
}

// encoder makes frames for one worker.
type encoder struct {
	plain bool
	enc   *codec.Encoder
	pool  *buffers
}

func newEncoder(opt *Options, pool *buffers) *encoder {
	return &encoder{plain: opt.Plain, enc: codec.NewEncoder(opt.Level), pool: pool}
}

// encode makes a frame of src, which it may refer to.
func (e *encoder) encode(src []byte, cuts, payloads []int) (frame, error) {
	f := frame{row: format.Row{Decoded: uint32(len(src))}}
	switch buf, ok, err := e.compress(src, cuts, payloads); {
	case err != nil:
		return f, err
	case e.plain:
		f.pieces = [][]byte{src}
	case ok:
		f.stored, f.pieces, f.row.Codec = buf, [][]byte{buf}, format.CodecZstd
	default:
		f.pieces, f.row.Codec = codec.RawFrame(src, cuts, payloads), format.CodecRaw
	}
	for _, p := range f.pieces {
		f.row.Stored += uint32(len(p))
		f.row.CRC = codec.UpdateChecksum(f.row.CRC, p)
	}
	return f, nil
}

// compress returns the compressed frame in memory of the pool. ok is false where there is none.
func (e *encoder) compress(src []byte, cuts, payloads []int) (buf []byte, ok bool, err error) {
	if e.plain {
		return nil, false, nil
	}
	buf, ok, err = e.enc.Compress(e.pool.get(len(src)+len(src)/64+1024), src, cuts, payloads)
	if !ok {
		e.pool.put(buf)
	}
	return buf, ok, err
}

// buffers keeps the memory of written frames for the next ones.
type buffers struct{ free chan []byte }

func (b *buffers) get(n int) []byte {
	select {
	case p := <-b.free:
		if cap(p) >= n {
			return p[:0]
		}
	default:
	}
	return make([]byte, 0, n)
}

func (b *buffers) put(p []byte) {
	if cap(p) == 0 || cap(p) > 4<<20 { // rare sizes are left to the garbage collector
		return
	}
	select {
	case b.free <- p:
	default:
	}
}
