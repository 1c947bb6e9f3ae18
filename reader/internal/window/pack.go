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

// mostPacked is the most bytes of the mean sample of a block that is packed, decoded, if less than
// half of such samples is headers: copying 3 KB took longer than its headers do.
const mostPacked = 2 << 10

// packs reports whether only the samples of a block are kept. headers is fetch.Shard.Headers.
func packs(decoded, samples, headers uint64) bool {
	return samples > 0 && decoded <= block.MostPacked && (decoded <= samples*mostPacked || decoded <= 2*samples*headers)
}

// Kept returns how many of the decoded bytes of blocks are kept in memory, without the tables, and
// whether the blocks are packed: about, for blocks and samples that are alike. headers is
// fetch.Shard.Headers, and key the length of a key.
func Kept(decoded, blocks, samples, headers, key float64) (kept float64, packed bool) {
	if !packs(uint64(decoded/max(blocks, 1)), uint64(samples/max(blocks, 1)), uint64(headers)) {
		return decoded, false
	}
	kept = decoded - samples*(headers-key)
	return min(max(kept+kept/16, 1), decoded), true // samples differ a little
}

// Arrange lays out the piece's job. scratch tells that blocks stored raw can be read to other
// memory than the piece's.
func (p *Piece) Arrange(scratch bool) {
	p.Plan = p.Job.Plan()
	if p.Packed = p.packs(scratch); !p.Packed {
		return
	}
	s, samples := p.Job.Shard, 0
	for _, r := range s.Rows[p.Job.From:p.Job.To] {
		samples += int(r.Samples)
	}
	key := max(len(s.FirstKey), len(s.LastKey))
	kept, _ := Kept(float64(p.Plan.Decoded), float64(p.Blocks), float64(samples), float64(s.Headers), float64(key))
	p.Plan.Size = int(kept)
}

// packs reports whether only the samples of a piece's blocks are kept, without the headers around
// them. scratch tells that blocks stored raw can be read to other memory.
func (p *Piece) packs(scratch bool) bool {
	s := p.Job.Shard
	for _, r := range s.Rows[p.Job.From:p.Job.To] {
		if !packs(uint64(r.Decoded), uint64(r.Samples), uint64(s.Headers)) || r.Codec != format.CodecZstd && !scratch {
			return false
		}
	}
	return s.Layout == nil
}

// pack keeps the samples of a decoded block in the memory of the piece at hand.
func (f *Filler) pack(r *fetch.Result, before int) {
	p := f.piece
	if before == 0 { // also of a second read
		f.begin()
	}
	to := &f.packed[r.Block-p.Job.Block]
	to.Packed, to.err = f.packer.Pack(p.Table, f.room, r.Decoded, r.Samples, r.Shard.Foreign)
}

// begin begins to use the memory of the piece at hand.
func (f *Filler) begin() {
	f.rest = f.piece.Buf[:cap(f.piece.Buf)]
	clear(f.packed)
}

// cut returns n bytes of the memory of the piece at hand.
func (f *Filler) cut(n int) []byte {
	if p := f.piece; n > len(f.rest) { // more than was expected of the piece
		buf := f.Window.force(n)
		if len(f.rest) == cap(p.Buf) { // all of it is unused
			f.Window.replace(p, buf)
		} else {
			p.more = append(p.more, buf)
		}
		f.rest = buf[:cap(buf)]
	}
	buf := f.rest[:n:n]
	f.rest = f.rest[n:]
	return buf
}

// shrink moves the samples of the piece at hand to a smaller buffer, if they leave more than half
// of its own unused.
func (f *Filler) shrink() {
	p := f.piece
	used := cap(p.Buf) - len(f.rest)
	if len(p.more) > 0 || 2*fetch.SizeOf(used) > cap(p.Buf) {
		return
	}
	buf := f.Window.force(used)
	rest := buf
	for i := range f.packed {
		if b := f.packed[i].Packed; b != nil {
			rest = b.Move(rest)
		}
	}
	f.Window.replace(p, buf)
}

// addPacked adds one block that was packed.
func (p *Piece) addPacked(r *fetch.Result, of packing) {
	if of.err != nil {
		p.addError(r, of.err)
		return
	}
	p.Table.AddPacked(of.Packed, r.First)
}
