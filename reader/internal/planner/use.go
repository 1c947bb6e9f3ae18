package planner

import (
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

const (
	// mostRefs is the most references of the batches that share a window.Use: enough that most pieces
	// of the window are found once for several of them.
	mostRefs = 4 << 10
	// usePart is the part of the window that the samples of these batches may take. About as much is
	// freed later than it could be, because pieces stay until the last of the batches is released.
	usePart = 32
)

// use is the window.Use at hand.
type use struct {
	*window.Use
	number  uint64 // counts from 1
	batches int
	refs    int   // of its batches
	bytes   int64 // of their samples
	held    int64 // by its pieces
}

// begin ends the use at hand and begins another.
func (p *Planner) begin() {
	p.end()
	p.use = use{Use: p.Window.Begin(), number: p.use.number + 1}
}

// end ends the use at hand.
func (p *Planner) end() {
	if p.use.Use != nil {
		p.Window.Release(p.use.Use)
		p.use.Use = nil
	}
}

// find finds the pieces of a batch and pins them.
func (p *Planner) find(d *Draft) error {
	p.batch++
	p.size.enter(d.Info.Epoch)
	before := p.size
	if u := &p.use; u.Use == nil || u.Copied || u.refs+len(d.Refs) > mostRefs || u.bytes > p.Window.Size()/usePart {
		p.begin()
	}
	bytes, err := p.pieces(d)
	if err == nil && p.use.held > p.Share && p.use.batches > 0 { // alone it may hold less
		p.use.Pieces = p.use.Pieces[:d.known] // the others are not pinned
		p.begin()
		bytes, err = p.pieces(d)
	}
	if err != nil {
		p.use.Pieces = p.use.Pieces[:d.known]
		return err
	}
	d.number, d.size = p.batch, before
	d.size.now -= bytes
	p.Ahead.Plan()
	p.Window.Pin(d.Use, d.known, p.batch)
	p.use.batches, p.use.refs, p.use.bytes = p.use.batches+1, p.use.refs+len(d.Refs), p.use.bytes+bytes
	// Pieces that batches in hand use cannot be evicted. A batch may hold only a share of the window,
	// so that there is always room for one more. The samples of a larger one are copied, and its
	// pieces are freed one by one.
	if p.use.held > p.Share {
		d.Copied, d.Bytes = true, bytes
		p.Window.Order(d.Pieces)
		for i, piece := range d.Pieces {
			piece.Note.Place = int32(i)
		}
		for k, in := range d.In {
			for i := range in {
				if r := &d.Refs[i]; in[i] >= 0 {
					in[i] = p.spanOf(k, r).piece(r).Note.Place
				}
			}
		}
	}
	return nil
}

// pieces finds the pieces of a batch in the use at hand, and returns about how many bytes its
// samples have.
func (p *Planner) pieces(d *Draft) (bytes int64, err error) {
	d.Use, d.known = p.use.Use, len(p.use.Pieces)
	if cap(d.In) == 0 {
		d.In = d.one[:0]
	}
	d.In = slices.Grow(d.In[:0], len(p.slots))[:len(p.slots)]
	for k := range p.slots {
		in := slices.Grow(d.In[k][:0], len(d.Refs))
		for i := range d.Refs {
			r := &d.Refs[i]
			s := p.spanOf(k, r)
			place := s.place
			if s.in != p.use.number {
				if place, err = p.place(s, r); err != nil {
					return 0, err
				}
			}
			if place >= 0 && k == 0 {
				bytes += p.Sources[r.Source].SampleBytes
			}
			in = append(in, place)
		}
		d.In[k] = in
	}
	d.Pieces = p.use.Pieces
	return bytes, nil
}

// place returns the place of a reference's piece in the use at hand, -1 for a hole, whose block
// need not be read for it, and for a level that the span does not have.
func (p *Planner) place(s *span, r *order.Ref) (int32, error) {
	piece := s.piece(r)
	if piece == nil || piece.Job.Shard.Gone(r.Number) {
		return -1, nil
	}
	note := &piece.Note
	if note.In != p.use.number {
		if int64(piece.Plan.Size) > p.Limit {
			if err := p.fits(piece); err != nil {
				return -1, err
			}
		}
		note.In, note.Place = p.use.number, int32(len(p.use.Pieces))
		if !note.Counted {
			note.Counted = true
			p.size.now += int64(piece.Plan.Size)
		}
		p.use.Pieces = append(p.use.Pieces, piece)
		if piece.Held == nil {
			p.use.held += int64(fetch.SizeOf(piece.Plan.Size))
		}
	}
	if len(s.Pieces) == 1 && len(piece.Job.Shard.Removed) == 0 {
		s.in, s.place = note.In, note.Place
	}
	return note.Place, nil
}

// fits refuses a block that is larger than the memory budget.
func (p *Planner) fits(piece *window.Piece) error {
	for i := range piece.Blocks {
		j := piece.Job.Shard.BlockRange(piece.Job.Block+i, 1)
		if need := j.Plan(); int64(need.Size) > p.Limit {
			err := fmt.Errorf("%w: the block has %d bytes, and the memory budget is %d: raise it to at least %d",
				format.ErrTooLarge, need.Decoded, p.Limit, need.Size)
			return format.Place{Shard: j.Shard.Name, Block: j.Block, Offset: j.Offset}.Wrap(err)
		}
	}
	return nil
}
