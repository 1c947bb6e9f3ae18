package planner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// plan plans the next batch. more is false after the last one.
func (p *Planner) plan(ctx context.Context, d *Draft) (more bool, err error) {
	d.Refs, d.Info, err = p.Order.Next(d.Refs)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Cuts, d.Info.Cuts = append(d.Cuts[:0], d.Info.Cuts...), nil // the order uses its own again
	for i := range d.Info.Opened {
		if err := p.open(ctx, &d.Info.Opened[i]); err != nil {
			return true, err
		}
	}
	if err := p.use(d); err != nil {
		return true, err
	}
	for i := range d.Info.Closed {
		p.close(d, &d.Info.Closed[i])
	}
	return true, nil
}

// open opens the slot of a span.
func (p *Planner) open(ctx context.Context, of *order.Span) error {
	p.Clock.Plan(account.PlanStore)
	sh, base, err := p.Shards.Shard(ctx, int(of.Source), of.Block)
	p.Clock.Plan(account.PlanOrder)
	if err != nil {
		return err
	}
	source := &p.Sources[of.Source]
	per := source.PieceBlocks
	if p.batch == 0 {
		per = source.FirstBlocks
	}
	from, to := (int(of.Block)-base)/per, (int(of.Block+of.Blocks-1)-base)/per
	s := span{Slot: p.Window.OpenSlot(), first: base + from*per, per: per}
	for n := from; n <= to; n++ {
		id := window.ID{Source: int(of.Source), Shard: sh.Number, Number: n, Per: per}
		piece := p.Window.Open(s.Slot, id, func(piece *window.Piece) {
			piece.First, piece.Blocks = source.trim(base+n*per, min(per, int(sh.Blocks)-n*per))
			piece.Job = sh.BlockRange(piece.First-base, piece.Blocks)
			piece.Plan = piece.Job.Plan(source.Joined)
		})
		piece.Note.Slots++
	}
	p.slots[of.Source].add(s) // serial numbers count up
	return nil
}

// trim leaves out blocks at the ends of a piece that are not wanted. A piece without any that is
// wanted is never read; it stays whole.
func (s *Source) trim(first, blocks int) (int, int) {
	if s.Wanted == nil {
		return first, blocks
	}
	from, to := first, first+blocks
	for from < to && !s.Wanted(from) {
		from++
	}
	for from < to && !s.Wanted(to-1) {
		to--
	}
	if from == to {
		return first, blocks
	}
	return from, to - from
}

// close closes the slot of a span after the batch: its pieces leave the count of the window.
func (p *Planner) close(d *Draft, of *order.Span) {
	own := &p.slots[of.Source]
	at := of.Slot - own.first
	for _, piece := range own.open[at].Pieces {
		if piece.Note.Slots--; piece.Note.Slots == 0 && piece.Note.Counted {
			piece.Note.Counted = false
			p.size.now -= int64(piece.Plan.Decoded)
		}
	}
	d.Closed = append(d.Closed, own.open[at].Slot)
	own.open[at] = span{}
	for len(own.open) > 0 && own.open[0].Slot == nil {
		own.open, own.first = own.open[1:], own.first+1
	}
}

// of returns the piece of a reference.
func (p *Planner) of(r *order.Ref) *window.Piece {
	own := &p.slots[r.Source]
	s := &own.open[r.Slot-own.first]
	if len(s.Pieces) == 1 {
		return s.Pieces[0]
	}
	return s.Pieces[(int(r.Block)-s.first)/s.per]
}

// use finds the pieces of a batch and pins them.
func (p *Planner) use(d *Draft) error {
	p.batch++
	p.size.enter(d.Info.Epoch)
	held := int64(0)
	before := p.size
	d.In = slices.Grow(d.In, len(d.Refs))
	for i := range d.Refs {
		r := &d.Refs[i]
		if r.Padding {
			d.In = append(d.In, -1)
			continue
		}
		piece := p.of(r)
		if piece.Job.Shard.Gone(r.Number) { // a hole: its block need not be read for it
			d.In = append(d.In, -1)
			continue
		}
		note := &piece.Note
		d.Bytes += p.Sources[r.Source].SampleBytes
		if note.Batch != p.batch {
			if int64(piece.Plan.Size) > p.Limit {
				if err := p.fits(piece, p.Sources[r.Source].Joined); err != nil {
					return err
				}
			}
			note.Batch, note.Use = p.batch, int32(len(d.Pieces))
			if !note.Counted {
				note.Counted = true
				p.size.now += int64(piece.Plan.Decoded)
			}
			d.Pieces = append(d.Pieces, piece)
			held += int64(fetch.SizeOf(piece.Plan.Size))
		}
		d.In = append(d.In, note.Use)
	}
	d.number, d.size = p.batch, before
	d.size.now -= d.Bytes
	p.Ahead.Plan()
	p.Window.Pin(&d.Use, p.batch)
	// What batches in hand use cannot be evicted. So that there is always room for one more, a batch
	// may hold a share of the window. The samples of a larger one are copied, and its pieces are freed
	// one by one.
	if d.Copied = held > p.Share; d.Copied {
		p.Window.Order(&d.Use)
		for i, piece := range d.Pieces {
			piece.Note.Use = int32(i)
		}
		for i := range d.Refs {
			if r := &d.Refs[i]; d.In[i] >= 0 {
				d.In[i] = p.of(r).Note.Use
			}
		}
	}
	return nil
}

// fits refuses a block that is larger than the memory budget.
func (p *Planner) fits(piece *window.Piece, joined int) error {
	for i := range piece.Blocks {
		j := piece.Job.Shard.BlockRange(piece.Job.Block+i, 1)
		if need := j.Plan(joined); int64(need.Size) > p.Limit {
			err := fmt.Errorf("%w: the block has %d bytes, and the memory budget is %d: raise it to at least %d",
				format.ErrTooLarge, need.Decoded, p.Limit, need.Size)
			return format.Place{Shard: j.Shard.Name, Block: j.Block, Offset: j.Offset}.Wrap(err)
		}
	}
	return nil
}

// bring has the i-th piece of a batch admitted and fetched. It returns how many pieces it brought,
// none when the batch has passed the piece, and false when ctx has ended.
func (p *Planner) bring(ctx context.Context, d *Draft, piece *window.Piece, i int) (brought int, ok bool) {
	defer p.Clock.Plan(account.PlanOrder)
	for {
		switch p.Window.Admit(&d.Use, piece, i, p.Ahead.Batches() == 1) {
		case window.Present:
			return 0, true
		case window.Admitted:
			p.Clock.Plan(account.PlanQueue)
			p.Clock.Move(&piece.Piece, account.Queued)
			select {
			case p.Fetches <- piece:
				return 1, true
			case <-ctx.Done():
				return 0, false
			}
		}
		p.Clock.Plan(account.PlanMemory)
		select {
		case <-p.Window.Freed():
		case <-ctx.Done():
			return 0, false
		}
	}
}
