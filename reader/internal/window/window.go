// Package window holds the blocks of a stream in memory: it decides what is in memory and what may
// stay.
//
// Blocks are held in pieces, which are fetched, decoded and freed together. The planner opens a
// Slot for each span of the order, and the pieces of open slots stay as long as there is room. It
// collects the pieces of a batch, or of several small ones, in a Use, pins them, and has each
// admitted, in the order in which batches need them:
//
//	Open(slot) ── Pin(use) ── Admit(piece) ── worker fills it ── Landed ── assembler reads it
//	                             │                                             │
//	                          no room: wait for Freed               Release(use, slots closed)
//
// When the budget is full and the consumer waits, pieces that no batch uses are evicted; they are
// read again when their next batch comes. The samples of a batch that would fill the budget by
// itself are copied out, piece by piece, into buffers of the batch.
//
// Sources share the window: an ID names source, shard and piece. Windows of several streams share
// the pieces of a source that all of them hold whole: see Held.
package window

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// ID names a piece: the Number-th group of Per consecutive blocks of a shard.
type ID struct{ Source, Shard, Number, Per int }

// Piece is consecutive blocks of a shard that are in memory together, or are going to be.
type Piece struct {
	ID
	account.Piece // its progress

	// The planner sets these when the piece is opened.
	Job    fetch.Job
	Plan   fetch.Plan
	Packed bool  // only keys and fields of its samples are kept, and Plan.Size is what they should need
	Held   *Held // keeps the samples of its blocks, which then take no memory of the window; nil: none
	First  int   // number in the source of its first block
	Blocks int

	// Note is the planner's; the window does not look at it.
	Note Note

	// BroughtBy is the batch that had to ask for the piece; set by Pin.
	BroughtBy uint64

	// Set by Admit. A worker fills what they refer to, and others read it once Landed reports true.
	Buf   []byte
	Table *block.Table

	more    [][]byte      // buffers beside Buf
	landing atomic.Uint32 // landed, awaited

	// Guarded by Window.mu.
	pins  int  // batches that use it and are not released
	open  int  // slots that may still draw from it
	here  bool // it has its memory
	spare bool // it stays until it has landed, and after a Turn, until a slot opens it or room is needed
	place int  // in Window.resident
}

// The bits of Piece.landing: whether the piece is filled, and whether the assembler waits for it.
const landed, awaited = 1, 2

// Note holds what the planner notes about a piece.
type Note struct {
	In      uint64 // the number of the last Use
	Place   int32  // in that Use
	Slots   int    // open slots at the batch at hand
	Counted bool   // in the size of the planner's window
	Next    *Piece // what the same worker fills after the piece
}

// Land marks a piece as filled, and reports whether the assembler waits for it. Its worker calls it
// last.
func (p *Piece) Land() bool { return p.landing.Or(landed)&awaited != 0 }

// Await records whether the assembler waits for the piece. It looks at Landed after that.
func (p *Piece) Await(on bool) {
	if on {
		p.landing.Or(awaited)
	} else {
		p.landing.And(^uint32(awaited))
	}
}

// Landed reports whether the piece is filled.
func (p *Piece) Landed() bool { return p.landing.Load()&landed != 0 }

// Slot is a span of the order that is open, with its pieces in storage order.
type Slot struct{ Pieces []*Piece }

// Use has the pieces that consecutive batches need, each once. Small batches draw from nearly the
// same pieces, so pinning them for each batch would take as long as copying its samples.
type Use struct {
	// The planner owns Pieces and Closed, and adds to Pieces; a batch keeps its own view of them.
	Pieces []*Piece
	Closed []*Slot // slots that no batch after these draws from
	// Copied reports that the samples are copied out of one piece after the other, so the pieces need
	// not be in memory together. Bytes is about how much the samples take. Such a Use has one batch.
	Copied bool
	Bytes  int64

	// Arrays has the blocks of rows of the pieces that have landed. The assembler owns it.
	Arrays block.Arrays

	users    int      // batches that are not released, and the planner; guarded by Window.mu
	gathered int      // pieces whose samples were copied; guarded by Window.mu
	copies   [][]byte // what samples were copied to; guarded by Window.mu
	copied   int64    // bytes of copies; guarded by Window.mu
	turn     int64    // bytes that CopyTurn granted; guarded by Window.mu
}

// Window is the memory of one stream. All methods may be called from several goroutines at once.
type Window struct {
	// Keep makes pieces stay in memory for the next epoch when nothing draws from them any more, as
	// long as nothing else needs the room. Set it before the first use.
	Keep bool

	clock *account.Clock
	freed chan struct{}
	turn  chan struct{} // holds a token when CopyTurn may succeed after it failed before

	mu       sync.Mutex
	pool     fetch.Pool
	pieces   map[ID]*Piece // nil when closed
	resident []*Piece      // those with memory
	urgent   bool          // the consumer waits for the batch that is being brought
	turns    int64         // bytes that CopyTurn granted to batches that are not released
	ended    bool          // no more slots are opened
	spares   bool          // some piece may be spare
	evicted  uint64        // blocks
	most     int           // len(resident) at any time
	held     []*Held       // that its pieces have
	// These are kept for reuse. There are as many tables as pieces with memory at a time.
	idle   []*Piece
	tables []*block.Table
	slots  []*Slot
	uses   []*Use
}

// New returns an empty window that holds at most limit bytes of blocks and copies. It reports the
// progress of evicted pieces to the clock.
func New(limit int64, c *account.Clock) *Window {
	w := &Window{
		clock: c, freed: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		pool: fetch.Pool{Limit: limit}, pieces: map[ID]*Piece{},
	}
	w.pool.Map()
	return w
}

// Freed returns a channel that holds a token when Admit may succeed after it failed before. It is
// for one goroutine.
func (w *Window) Freed() <-chan struct{} { return w.freed }

// Urgent records whether the consumer waits for a batch. Only then does Admit take memory from
// pieces that later batches need, because nobody else can free any.
func (w *Window) Urgent(on bool) {
	w.mu.Lock()
	w.urgent = on
	w.mu.Unlock()
	if on {
		tune.Signal(w.freed)
		tune.Signal(w.turn)
	}
}

// OpenSlot returns an empty slot.
func (w *Window) OpenSlot() *Slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return block.Take(&w.slots)
}

// Open adds a piece to a slot. fill sets the planner's fields of a piece that is new, all of them.
func (w *Window) Open(s *Slot, id ID, fill func(*Piece)) *Piece {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pieces[id]
	if p == nil {
		p = block.Take(&w.idle)
		p.ID, p.BroughtBy = id, 0
		p.SetEvicted(false)
		fill(p)
		w.pieces[id] = p
	}
	p.open++
	p.spare = false
	s.Pieces = append(s.Pieces, p)
	return p
}

// CloseSlot closes a slot that no batch draws from.
func (w *Window) CloseSlot(s *Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeSlot(s)
}

func (w *Window) closeSlot(s *Slot) {
	for _, p := range s.Pieces {
		p.open--
		w.letGo(p)
	}
	s.Pieces = s.Pieces[:0]
	w.slots = append(w.slots, s)
}

// Begin returns an empty Use, which the planner must Release when it adds no more batches.
func (w *Window) Begin() *Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := block.Take(&w.uses)
	u.users = 1
	return u
}

// Pin adds a batch to a Use, and keeps the pieces that it is the first to need, those after the
// first known ones, in the window until all batches of the Use are released. It marks the pieces
// that the batch has to wait for.
func (w *Window) Pin(u *Use, known int, batch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u.users++
	for _, p := range u.Pieces[known:] {
		p.pins++
		if !p.here {
			p.BroughtBy = batch
		}
	}
}

// Size returns the limit of the window in bytes.
func (w *Window) Size() int64 { return w.pool.Limit }

// Trim frees the buffers that are kept for reuse.
func (w *Window) Trim() {
	w.mu.Lock()
	w.pool.Trim()
	w.mu.Unlock()
}

// Stats returns the blocks evicted so far, and the most bytes held at any time.
func (w *Window) Stats() (evicted uint64, most int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.evicted, w.pool.Most()
}

// End tells the window that no more slots are opened: nothing stays for another epoch, and the
// memory of large pieces goes back to the system as soon as no batch needs them.
func (w *Window) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.pool.End()
	for _, p := range slices.Clone(w.resident) {
		p.spare = p.spare && !p.Landed()
		w.letGo(p)
	}
}

// Turn tells the window that the slots which are open will be closed, and slots of another order
// opened, which may need the same pieces. What is in memory stays until then, as long as nothing
// else needs the room. keep is Keep from now on. It may follow End.
func (w *Window) Turn(keep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.spares, w.Keep = false, true, keep
	w.pool.Again()
	for _, p := range w.resident {
		p.spare = true
	}
}

// Close ends the window. If batches are in hand, their pieces and copies stay as they are as long
// as anything refers to the window, or until Free.
func (w *Window) Close(inHand bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if inHand {
		for _, p := range w.resident {
			if p.pins == 0 {
				w.free(p)
			}
		}
		w.pool.Abandon()
	} else {
		for _, p := range w.resident {
			if p.Held != nil {
				w.free(p)
			}
		}
		w.close()
	}
	w.pieces, w.resident, w.idle, w.tables, w.slots, w.uses = nil, nil, nil, nil, nil, nil
}

// Free ends the use of all pieces and copies of a window that was closed, or is about to be: their
// memory may belong to another window afterwards.
func (w *Window) Free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.close()
}

// close frees the memory that the window refers to.
func (w *Window) close() {
	w.pool.Close()
	for _, h := range w.held {
		h.leave()
	}
	w.held = nil
}
