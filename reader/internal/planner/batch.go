package planner

import (
	"context"
	"errors"
	"io"

	"github.com/shardtool/shardtool/internal/figures/account"
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
	if d.Info.Entries != nil {
		d.entries = append(d.entries[:0], d.Info.Entries...)
		d.Info.Entries = d.entries
	}
	for i := range d.Info.Opened {
		if err := p.open(ctx, p.slots, &d.Info.Opened[i]); err != nil {
			return true, err
		}
	}
	padding, err := p.pad(ctx, d)
	if err == nil {
		err = p.find(d)
	}
	if err != nil {
		return true, err
	}
	for i := range padding {
		p.close(d, p.pads, &padding[i])
	}
	for i := range d.Info.Closed {
		p.close(d, p.slots, &d.Info.Closed[i])
	}
	return true, nil
}

// pad opens a span for each block that the padding of a batch repeats samples of, and returns them.
// The order opens none: other ranks may have these samples, and no later batch needs the blocks.
func (p *Planner) pad(ctx context.Context, d *Draft) (spans []order.Span, err error) {
	type key struct {
		source uint16
		block  uint32
	}
	var slots map[key]uint64
	for i := range d.Refs {
		r := &d.Refs[i]
		if !r.Padding {
			continue
		}
		if slots == nil {
			slots = map[key]uint64{}
		}
		of := key{r.Source, r.Block}
		if slots[of] == 0 {
			own := &p.pads[0][r.Source]
			slots[of] = own.first + uint64(len(own.open))
			span := order.Span{Slot: slots[of], Source: r.Source, Block: r.Block, Blocks: 1}
			if err := p.open(ctx, p.pads, &span); err != nil {
				return nil, err
			}
			spans = append(spans, span)
		}
		r.Slot = slots[of]
	}
	return spans, nil
}

// open opens the slots of a span, in lists by level and source.
func (p *Planner) open(ctx context.Context, slots [][]slots, of *order.Span) error {
	p.Clock.Plan(account.PlanStore)
	all, base, err := p.Shards.Shards(ctx, int(of.Source), of.Block)
	p.Clock.Plan(account.PlanOrder)
	if err != nil {
		return err
	}
	for k := range slots {
		s := span{Slot: p.Window.OpenSlot()}
		if k < len(all) {
			p.fill(&s, of, &all[k], base)
		}
		slots[k][of.Source].add(s) // serial numbers count up
	}
	return nil
}

// fill opens the pieces of a span in a shard whose first block has the number base.
func (p *Planner) fill(s *span, of *order.Span, sh *Shard, base int) {
	source := &p.Sources[of.Source]
	per := source.PieceBlocks
	if p.batch == 0 {
		per = source.FirstBlocks
	}
	from, to := (int(of.Block)-base)/per, (int(of.Block+of.Blocks-1)-base)/per
	s.first, s.per = base+from*per, per
	for n := from; n <= to; n++ {
		id := window.ID{Source: sh.Set, Shard: sh.Of.Number, Number: n, Per: per}
		piece := p.Window.Open(s.Slot, id, func(piece *window.Piece) {
			piece.Note, piece.Held = window.Note{}, sh.Held
			piece.First, piece.Blocks = source.trim(base+n*per, min(per, int(sh.Of.Blocks)-n*per))
			piece.Job = sh.Of.BlockRange(piece.First-base, piece.Blocks)
			piece.Arrange(p.Local)
		})
		piece.Note.Slots++
	}
}

// trim leaves out unwanted blocks at the ends of a piece. A piece without wanted blocks is never
// read, and stays whole.
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

// close closes the slots of a span after the batch: their pieces leave the count of the window.
func (p *Planner) close(d *Draft, slots [][]slots, of *order.Span) {
	for k := range slots {
		p.closeSlot(d, &slots[k][of.Source], of)
	}
}

func (p *Planner) closeSlot(d *Draft, own *slots, of *order.Span) {
	at := of.Slot - own.first
	p.leave(&own.open[at])
	d.Closed = append(d.Closed, own.open[at].Slot)
	own.open[at] = span{}
	for len(own.open) > 0 && own.open[0].Slot == nil {
		own.open, own.first = own.open[1:], own.first+1
	}
}

// leave notes that no batch draws from a span any more: its pieces leave the count of the window.
func (p *Planner) leave(s *span) {
	for _, piece := range s.Pieces {
		if piece.Note.Slots--; piece.Note.Slots == 0 && piece.Note.Counted {
			piece.Note.Counted, piece.Note.In = false, 0
			p.size.now -= int64(piece.Plan.Size)
		}
	}
}

// bring admits the i-th piece of the use at hand and asks for it. It returns how many pieces it
// brought, none if the batch has passed the piece, and false if ctx has ended.
func (p *Planner) bring(ctx context.Context, piece *window.Piece, i int) (brought int, ok bool) {
	defer p.Clock.Plan(account.PlanOrder)
	for {
		switch p.Window.Admit(p.use.Use, piece, i, p.Ahead.Batches() == 1) {
		case window.Present:
			return 0, true
		case window.Admitted:
			return 1, p.ask(ctx, piece)
		}
		if !p.send(ctx) { // what has memory must not wait for other memory
			return 0, false
		}
		p.Clock.Plan(account.PlanMemory)
		select {
		case <-p.Window.Freed():
		case <-ctx.Done():
			return 0, false
		}
	}
}

const (
	// chained is the most decoded bytes of a small piece. Such a piece takes less time than a worker
	// takes to get it, to wake another goroutine and to wait for its next turn.
	chained = 64 << 10
	// jobBytes and jobPieces bound the small pieces of a job, so that the batch does not wait for one
	// worker while others have nothing to do.
	jobBytes, jobPieces = 128 << 10, 16
)

// job is the small pieces that were admitted and not asked for.
type job struct {
	first, last   *window.Piece
	bytes, pieces int
}

// ask asks for a piece that was admitted: at once, with the small ones before it, unless it is
// small and they make no job yet. It returns false if ctx has ended.
func (p *Planner) ask(ctx context.Context, piece *window.Piece) bool {
	p.Clock.Move(&piece.Piece, account.Queued)
	piece.Note.Next = nil
	j := &p.job
	if j.first == nil {
		j.first = piece
	} else {
		j.last.Note.Next = piece
	}
	j.last, j.bytes, j.pieces = piece, j.bytes+piece.Plan.Decoded, j.pieces+1
	if p.Local && piece.Plan.Decoded <= chained && j.bytes < jobBytes && j.pieces < jobPieces {
		return true
	}
	return p.send(ctx)
}

// send asks for the pieces of the job at hand. It returns false if ctx has ended.
func (p *Planner) send(ctx context.Context) bool {
	if p.job.first == nil {
		return true
	}
	first := p.job.first
	p.Clock.Plan(account.PlanQueue)
	defer p.Clock.Plan(account.PlanOrder)
	if p.Local && first.Note.Next == nil { // the queue is as long as reads overlap
		first.Job.Shard.Object.Source.Expect(ctx, &first.Job, first.Plan.Stored)
	}
	select {
	case p.Fetches <- first:
		p.job = job{}
		return true
	case <-ctx.Done():
		return false
	}
}
