package window

import (
	"context"
	"math"
	"sync"

	"github.com/shardtool/shardtool/reader/internal/block"
)

// Held keeps the pieces of one data set that several windows hold whole. Each is fetched and
// decoded once, by the worker that needs it first, and stays until Close, so the memory is that of
// the data set, however many windows there are. A piece with an error is not kept: every window
// meets the error itself, as it would alone.
//
// The zero value is not ready; see NewHeld. All methods may be called from several goroutines.
type Held struct {
	memory *Window // of the pieces

	mu     sync.Mutex
	pieces map[blocks]*held // nil when closed
	users  int              // windows that may refer to pieces
}

// blocks are consecutive blocks of a shard.
type blocks struct {
	shard, first, count int
	packed              bool
}

// held is a piece on its way, or in memory.
type held struct {
	Piece
	done chan struct{} // closed when the piece is filled, or given up
	kept bool          // set before done is closed
}

// NewHeld returns memory for pieces of at most limit bytes, as buffers of a few sizes. More is
// allocated apart.
func NewHeld(limit int64) *Held {
	h := &Held{memory: New(limit, nil), pieces: map[blocks]*held{}}
	h.memory.pool.Limit = math.MaxInt64 // nothing waits for room
	return h
}

// Close gives up the pieces. While windows use some, they stay as they are for as long as anything
// refers to the windows, or until the last of these ends.
func (h *Held) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pieces = nil
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if h.users > 0 {
		h.memory.pool.Abandon()
	} else {
		h.memory.pool.Close()
	}
}

// join notes that a window may refer to pieces, and leave that it does not any more.
func (h *Held) join() {
	h.mu.Lock()
	h.users++
	h.mu.Unlock()
}

func (h *Held) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 || h.pieces != nil {
		return
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.memory.pool.Close()
}

// Bytes returns how many bytes the pieces have; 0 for nil.
func (h *Held) Bytes() int64 {
	if h == nil {
		return 0
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	return h.memory.pool.Lent()
}

// fill gives p the samples of its blocks. It reports whether it fetched them.
func (h *Held) fill(ctx context.Context, f *Filler, p *Piece) (fetched bool) {
	id := blocks{p.Job.Shard.Number, p.Job.Block, p.Blocks, p.Packed}
	for {
		h.mu.Lock()
		of := h.pieces[id]
		first := of == nil
		if first {
			of = &held{done: make(chan struct{})}
			if h.pieces != nil {
				h.pieces[id] = of
			}
		}
		h.mu.Unlock()
		if first {
			h.fetch(ctx, f, p, of, id)
			return true
		}
		select {
		case <-of.done:
			if of.kept {
				p.Table = of.Table
				return false
			}
		case <-ctx.Done():
			p.Table = new(block.Table)
			for range p.Blocks {
				p.Table.AddError(context.Cause(ctx))
			}
			return false
		}
	}
}

// fetch fetches a piece in the memory of h.
func (h *Held) fetch(ctx context.Context, f *Filler, p *Piece, of *held, id blocks) {
	of.Job, of.Plan, of.Packed, of.First, of.Blocks = p.Job, p.Plan, p.Packed, p.First, p.Blocks
	of.Buf, of.Table = h.memory.force(p.Plan.Size), new(block.Table)
	own := f.Window
	f.Window = h.memory
	f.fill(ctx, &of.Piece)
	f.Window = own
	p.Table, of.kept = of.Table, true
	for i := range of.Blocks {
		of.kept = of.kept && of.Table.Err(i) == nil
	}
	if !of.kept {
		p.Buf, p.more = of.Buf, of.more // its own until it is dropped
		h.mu.Lock()
		delete(h.pieces, id)
		h.mu.Unlock()
	}
	close(of.done)
}

// drop takes back what a window does not use any more of a piece.
func (h *Held) drop(p *Piece) {
	if p.Buf == nil { // the piece is kept
		return
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	p.give(&h.memory.pool)
}
