// Package planner runs ahead of the consumer: it lists the batches to come and asks for their
// blocks.
//
//	Order ──▶ batch: references, spans that open and close
//	      ──▶ spans become window.Slots, references find their pieces, the batch pins them
//	      ──▶ Drafts, for the assembler           (first, so that it sees the batch coming)
//	      ──▶ window.Admit, piece by piece ──▶ Fetches, for the workers
//
// One goroutine plans. It asks for memory in the order in which batches need it, so whatever the
// consumer waits for has its memory already or gets it next. It stops where tune.Ahead says that
// the consumer needs no more yet.
package planner

import (
	"context"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Order lists one rank's part of the batches of a stream.
type Order interface {
	// Next appends the references of the next batch. The error is io.EOF after the last.
	Next(refs []order.Ref) ([]order.Ref, order.Batch, error)
}

// Shards finds the shards of the sources.
type Shards interface {
	// Shards returns the shards that are read for a block of a source: one of each data set that has
	// fields of its samples, at least one and at most Planner.Levels. All have the same blocks. first
	// is the number of their first block in the source. The result is not written to.
	Shards(ctx context.Context, source int, block uint32) (all []Shard, first int, err error)
}

// Shard is a shard with the number of its data set. Data sets are numbered over all sources.
type Shard struct {
	Of   *fetch.Shard
	Set  int
	Held *window.Held // keeps its pieces; nil: the window does
}

// Source describes a source for the planner.
type Source struct {
	PieceBlocks int // blocks of a piece
	// FirstBlocks is the same in the spans that the first batch opens. With 1, the batch for which a
	// loop waits from a cold start brings only the blocks that it draws from: a half or a quarter of
	// the runs of a shuffled order. It may be smaller than PieceBlocks only if no piece spans runs.
	FirstBlocks int
	// Wanted reports whether a block has samples in the order; nil means that all blocks have. The
	// wanted blocks of a piece are consecutive, and only they are read.
	Wanted      func(block int) bool
	SampleBytes int64 // mean bytes of a sample in the window, of all its data sets
}

// Planner plans the batches of one stream. Fill in the exported fields, then call Run.
type Planner struct {
	Order   Order
	Shards  Shards
	Sources []Source
	// Levels is the most data sets that are read for a sample; 0 means 1. The shards of a span have
	// levels 0, 1, … as Shards returned them.
	Levels int
	Window *window.Window
	Clock  *account.Clock
	Ahead  *tune.Ahead
	Load   *tune.Load
	// Limit is the memory budget: a larger block is an error. Share is the largest part of the window
	// that the pieces of one batch may hold; the samples of a larger batch are copied.
	Limit, Share int64

	// Local tells that a read costs no request: small pieces of a batch become one job, and the store
	// is told of larger ones before their turn.
	Local bool
	// Run closes Drafts when it ends. What is sent to Fetches is a job: a piece, and what its Note has
	// next, one after the other.
	Drafts  chan<- *Draft
	Fetches chan<- *window.Piece

	idle drafts

	// Owned by Run.
	slots [][]slots // by level and source
	pads  [][]slots // the same for the padding of the batch at hand
	batch uint64    // number of the batch at hand
	use   use
	size  extent
	job   job // not asked for yet
}

// slots are the open slots of a source, by serial number from first on.
type slots struct {
	first uint64
	open  []span
	all   []span // open is its end; spans before that are closed, and add overwrites them
}

// add adds the slot of the next serial number.
func (s *slots) add(of span) {
	if len(s.all) == cap(s.all) && len(s.open) <= len(s.all)/2 {
		n := copy(s.all, s.open)
		clear(s.all[n:])
		s.all = s.all[:n]
	}
	open := len(s.open)
	s.all = append(s.all, of)
	s.open = s.all[len(s.all)-open-1:]
}

// noSlots returns lists of slots without any.
func (p *Planner) noSlots() [][]slots {
	all := make([][]slots, max(p.Levels, 1))
	for k := range all {
		all[k] = make([]slots, len(p.Sources))
		for i := range all[k] {
			all[k][i].first = 1 // serial numbers count from 1
		}
	}
	return all
}

// span is a slot with the number of the first block of its first piece, and the number of blocks of
// a piece. The zero value is a closed span. The slot of a level that the span does not have is
// empty.
type span struct {
	*window.Slot
	first, per int

	// For a slot of one piece without removed samples, in is the number of a use, and place the place
	// of the piece in it. They save references a look at the piece.
	in    uint64
	place int32
}

// spanOf returns the span of a reference at a level.
func (p *Planner) spanOf(level int, r *order.Ref) *span {
	all := p.slots
	if r.Padding {
		all = p.pads
	}
	own := &all[level][r.Source]
	return &own.open[r.Slot-own.first]
}

// piece returns the piece of a reference of the span, nil if the span does not have its level.
func (s *span) piece(r *order.Ref) *window.Piece {
	switch len(s.Pieces) {
	case 0:
		return nil
	case 1:
		return s.Pieces[0]
	}
	return s.Pieces[(int(r.Block)-s.first)/s.per]
}

// Run plans until the order or ctx ends. An error becomes the last draft.
func (p *Planner) Run(ctx context.Context) {
	defer close(p.Drafts)
	defer func() {
		p.end()
		if ctx.Err() == nil {
			p.Window.End()
		}
	}()
	if p.slots == nil {
		p.slots, p.pads = p.noSlots(), p.noSlots()
	}
	for p.Ahead.Wait(ctx) {
		d := p.idle.take()
		more, err := p.plan(ctx, d)
		if !more && err == nil {
			return
		}
		d.Err = err
		// From here on the draft is the assembler's, and the consumer may release it before this loop
		// has gone over its pieces.
		pieces, known, epoch := d.Pieces, d.known, d.Info.Epoch
		select {
		case p.Drafts <- d:
		case <-ctx.Done():
			p.Drop(d)
			return
		}
		if err != nil {
			return
		}
		brought := 0
		for i := known; i < len(pieces); i++ {
			piece := pieces[i]
			if piece.BroughtBy != p.batch { // the batch found it in memory, and keeps it there
				continue
			}
			came, ok := p.bring(ctx, piece, i)
			if !ok {
				return // ctx has ended
			}
			brought += came
		}
		if !p.send(ctx) {
			return
		}
		p.Load.Batch(epoch, brought)
	}
}

// Drop is Release for a draft whose batch nobody gets. Nobody may be assembling it.
func (p *Planner) Drop(d *Draft) {
	if d.Err == nil {
		p.Window.Drop(d.Use, d.Pieces)
		p.Ahead.Deliver()
	}
}

// Turn prepares for another Run with another Order and Drafts, after a Run that its context ended
// or that came to the end of its order. All drafts that were not delivered must have been dropped.
// What is in memory stays if the new order needs it, and with keep as long as there is room.
func (p *Planner) Turn(keep bool) {
	p.Window.Turn(keep)
	for _, all := range [][][]slots{p.slots, p.pads} {
		for k := range all {
			for i := range all[k] {
				for at := range all[k][i].open {
					if s := &all[k][i].open[at]; s.Slot != nil {
						p.leave(s)
						p.Window.CloseSlot(s.Slot)
					}
				}
			}
		}
	}
	p.slots, p.pads = p.noSlots(), p.noSlots()
}
