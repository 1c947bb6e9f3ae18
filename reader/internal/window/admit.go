package window

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// Outcome tells what Admit did.
type Outcome int

// The outcomes of Admit.
const (
	Wait     Outcome = iota // there is no room: try again after Freed
	Present                 // the piece has its memory, or the batch has passed it
	Admitted                // the piece got memory now and has to be fetched
)

// Admit gives p, the i-th piece of a Use, its memory. alone tells that no earlier batch is on its
// way: if the consumer waits, it waits for this batch. The batch may be released already.
func (w *Window) Admit(u *Use, p *Piece, i int, alone bool) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.here || p.pins == 0 {
		return Present
	}
	last := w.urgent && alone
	switch n := p.Plan.Size; {
	case p.Held != nil:
		if !slices.Contains(w.held, p.Held) {
			w.held = append(w.held, p.Held)
			p.Held.join()
		}
		w.enter(p)
		return Admitted
	case u.Copied && last:
		p.Buf = w.admitCopied(n, u, i)
	case u.Copied:
	case last:
		p.Buf = w.get(n)
	default:
		for p.Buf = w.pool.Take(n); p.Buf == nil && w.dropSpare(); p.Buf = w.pool.Take(n) {
			continue
		}
	}
	if p.Buf == nil {
		return Wait
	}
	p.Table = block.Take(&w.tables)
	w.enter(p)
	return Admitted
}

// enter notes that a piece has its memory.
func (w *Window) enter(p *Piece) {
	p.here, p.place = true, len(w.resident)
	w.resident = append(w.resident, p)
	w.most = max(w.most, len(w.resident))
}

// force returns n bytes for a piece that is being filled. They may be above the limit: a worker
// that waited for room would wait for batches that wait for it.
func (w *Window) force(n int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pool.Force(n)
}

// replace gives a piece that is being filled another buffer in place of its own.
func (w *Window) replace(p *Piece, buf []byte) {
	w.mu.Lock()
	w.pool.Put(p.Buf)
	p.Buf = buf
	w.mu.Unlock()
	tune.Signal(w.freed)
}

// free frees the memory of a piece.
func (w *Window) free(p *Piece) {
	if p.Held != nil {
		p.Held.drop(p)
	} else {
		p.give(&w.pool)
	}
}

// give gives the memory of a piece back to the pool.
func (p *Piece) give(pool *fetch.Pool) {
	pool.Put(p.Buf)
	for i, buf := range p.more {
		pool.Put(buf)
		p.more[i] = nil
	}
	p.Buf, p.more = nil, p.more[:0]
}

// get returns n bytes for a piece that the consumer waits for. They are free bytes, or bytes of
// pieces that no batch uses, or bytes above the limit if batches in hand hold all of it.
func (w *Window) get(n int) []byte {
	for buf := w.pool.Take(n); ; buf = w.pool.Take(n) {
		if buf != nil {
			return buf
		}
		if !w.evict() {
			return w.pool.Force(n)
		}
	}
}

// admitCopied returns memory for the i-th piece of a batch that is copied. Copies to come get their
// room first. A piece beyond the limit is granted only when all pieces before it are gone.
func (w *Window) admitCopied(n int, u *Use, i int) []byte {
	rest := max(u.Bytes-u.copied, 0) + int64(fetch.SizeOf(n))
	for w.pool.Lent()+rest > w.pool.Limit && w.evict() {
		continue
	}
	switch {
	case u.gathered == i:
		return w.pool.Force(n)
	case w.pool.Lent()+rest > w.pool.Limit:
		return nil
	}
	return w.pool.Take(n)
}

// Order sorts the pieces of a batch that is copied: those in memory first, which makes room for the
// others.
func (w *Window) Order(pieces []*Piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	absent := func(p *Piece) int {
		if p.here {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pieces, func(x, y *Piece) int { return absent(x) - absent(y) })
}

// CopyTurn waits until a batch of about n bytes may be copied: while other batches hold more than
// half of the window in copies, only the one that the consumer waits for. The pieces of a batch may
// all be in memory, so nothing else bounds the copies of the batches ahead. It is for one goroutine.
func (w *Window) CopyTurn(ctx context.Context, u *Use, n int64) error {
	for {
		w.mu.Lock()
		granted := w.urgent || w.turns == 0 || w.turns+n <= w.pool.Limit/2
		if granted {
			u.turn = n
			w.turns += n
		}
		w.mu.Unlock()
		if granted {
			return nil
		}
		select {
		case <-w.turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Copy returns a buffer of at least n bytes for copies of a batch's samples, up to its capacity.
func (w *Window) Copy(u *Use, n int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = max(n, min(max(int(w.pool.Limit/64), 4<<10), 1<<20)) // of few sizes, for the next batch to use again
	buf := w.get(n)
	u.copies = append(u.copies, buf)
	u.copied += int64(cap(buf))
	return buf
}

// Gathered ends a copied batch's use of a piece.
func (w *Window) Gathered(u *Use, p *Piece) {
	w.mu.Lock()
	u.gathered++
	p.pins--
	w.letGo(p)
	w.mu.Unlock()
	tune.Signal(w.freed) // also where nothing was freed: the next piece of the batch may have its turn
}

// Release ends the part of a batch, or of the planner, in a Use. The last one unpins the pieces,
// frees the copies and closes the slots that ended. It reports whether the window is still open.
func (w *Window) Release(u *Use) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pieces == nil {
		return false
	}
	if u.users--; u.users > 0 {
		return true
	}
	before := w.pool.Lent()
	if !u.Copied {
		for _, p := range u.Pieces {
			p.pins--
			w.letGo(p)
		}
	}
	for _, s := range u.Closed {
		w.closeSlot(s)
	}
	for _, c := range u.copies {
		w.pool.Put(c)
	}
	if u.turn > 0 {
		w.turns -= u.turn
		tune.Signal(w.turn)
	}
	if w.pool.Lent() < before || w.urgent { // else Admit fails as before: most small batches free nothing
		tune.Signal(w.freed)
	}
	clear(u.copies) // a Use that is kept for reuse must not keep buffers alive
	u.Arrays.Reset()
	*u = Use{Pieces: u.Pieces[:0], Closed: u.Closed[:0], Arrays: u.Arrays, copies: u.copies[:0]}
	w.uses = append(w.uses, u)
	return true
}

// Drop is Release for a batch that nobody gets, and that nobody assembles any more. pieces are those
// that the batch sees of the Use.
func (w *Window) Drop(u *Use, pieces []*Piece) {
	w.mu.Lock()
	if u.Copied && w.pieces != nil { // the pieces that were not gathered are still pinned
		for _, p := range pieces[u.gathered:] {
			p.pins--
			w.letGo(p)
		}
		u.gathered = len(pieces)
	}
	w.mu.Unlock()
	w.Release(u)
}

// dropSpare frees the memory of a spare piece, and reports whether there was one. A worker may
// still be filling some.
func (w *Window) dropSpare() bool {
	if !w.spares {
		return false
	}
	w.spares = false
	for _, p := range slices.Backward(w.resident) {
		if !p.spare || p.pins > 0 || p.open > 0 || !p.Landed() || p.Held != nil {
			w.spares = w.spares || p.spare
			continue
		}
		p.spare = false
		if w.letGo(p); !p.here {
			w.spares = true
			return true
		}
	}
	return false
}

// evict frees the memory of a piece that no batch uses, and reports whether there was one. Which
// one matters little: in a window every run is drawn from at nearly every tick.
func (w *Window) evict() bool {
	if w.dropSpare() {
		return true
	}
	for i := len(w.resident) - 1; i >= 0; i-- {
		if p := w.resident[i]; p.pins == 0 && p.Held == nil && p.Landed() {
			if p.open > 0 { // else it is only kept
				w.evicted += uint64(p.Blocks)
				p.SetEvicted(true)
			}
			w.drop(p)
			w.letGo(p)
			return true
		}
	}
	return false
}

// letGo forgets a piece that nothing will draw from any more, unless it is kept in memory. One that
// was asked for and has not landed is spare until then: its worker writes to it.
func (w *Window) letGo(p *Piece) {
	if p.pins > 0 || p.open > 0 {
		return
	}
	if p.here && !p.Landed() {
		p.spare, w.spares = true, true
	}
	if p.here && (w.Keep && !w.ended || p.spare) {
		return
	}
	if p.here {
		w.drop(p)
	}
	delete(w.pieces, p.ID)
	w.idle = append(w.idle, p)
}

// drop frees a piece's memory.
func (w *Window) drop(p *Piece) {
	last := w.resident[len(w.resident)-1]
	w.resident[p.place], last.place = last, p.place
	w.resident = w.resident[:len(w.resident)-1]
	w.free(p)
	if p.Held == nil { // else others may use the table
		p.Table.Reset()
		if len(w.tables)+len(w.resident) < w.most {
			w.tables = append(w.tables, p.Table)
		}
	}
	p.Table, p.here = nil, false
	p.landing.And(^uint32(landed))
	w.clock.Move(&p.Piece, account.Unasked)
}
