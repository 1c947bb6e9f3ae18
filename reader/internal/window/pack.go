package window

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// packing is the result of Filler.pack for a block.
type packing struct {
	*block.Packed
	err error
}

// mostPacked is the most bytes of the mean sample of a block that is packed, decoded: half of such
// a block is headers. Larger samples stay where they are: copying 3 KB took longer than its headers
// do.
const mostPacked = 2 << 10

// packs reports whether only the samples of a piece's blocks are kept, without the headers around
// them. scratch tells that blocks stored raw can be read to other memory.
func (p *Piece) packs(scratch bool) bool {
	s := p.Job.Shard
	for _, r := range s.Rows[p.Job.From:p.Job.To] {
		if r.Samples == 0 || r.Decoded > block.MostPacked || r.Decoded/r.Samples > mostPacked || r.Codec != format.CodecZstd && !scratch {
			return false
		}
	}
	return s.Layout == nil
}

// pack keeps the samples of a decoded block in the buffer of the piece at hand, where the block
// would be.
func (f *Filler) pack(r *fetch.Result, before int) {
	p := f.piece
	to := &f.packed[r.Block-p.Job.Block]
	to.Packed, to.err = f.packer.Pack(p.Table, p.Buf[before:before+len(r.Decoded)], r.Decoded, r.Samples, r.Shard.Foreign)
}

// addPacked adds one block that was packed.
func (p *Piece) addPacked(r *fetch.Result, of packing) {
	if of.err != nil {
		p.addError(r, of.err)
		return
	}
	p.Table.AddPacked(of.Packed, r.First)
}
