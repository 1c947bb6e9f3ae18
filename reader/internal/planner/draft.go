package planner

import (
	"sync"

	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Draft is a batch as it was planned.
type Draft struct {
	// Several batches share a Use. Pieces are its pieces up to this batch: the planner may add others
	// to Use.Pieces at any time.
	*window.Use
	Pieces []*window.Piece
	Refs   []order.Ref
	Cuts   []order.Cut // of each reference, where positions hold units; else empty
	// In has by level each reference's piece in Pieces. It is -1 at level 0 for removed samples,
	// and elsewhere also where no data set is read at the level.
	In   [][]int32
	Info order.Batch
	Err  error // in place of the batch; ends the stream

	one     [1][]int32 // memory of In for one level
	entries []uint32   // memory of Info.Entries
	number  uint64     // of the batch
	known   int        // pieces that batches before it in the Use need
	size    extent     // of the window before the batch, its own samples left out
	brought int64      // bytes that were brought for the batch so far
}

// Fresh returns the pieces that no batch before it in the Use needs. The others are in memory, once
// those batches are filled.
func (d *Draft) Fresh() []*window.Piece { return d.Pieces[d.known:] }

// Await counts a piece that the batch needs next. It reports whether a wait for the piece serves
// later batches more than this one: whether it makes the window larger than it was in the epoch.
func (d *Draft) Await(p *window.Piece) (ahead bool) {
	ahead = d.size.now+d.brought >= d.size.most
	if p.BroughtBy == d.number {
		d.brought += int64(p.Plan.Size)
	}
	return ahead
}

// extent is how large the window is: the bytes of pieces that were brought and whose slots are
// open, and the most that it was in the epoch.
type extent struct {
	now, most int64
	epoch     uint64
}

// enter turns to the epoch of a batch.
func (e *extent) enter(epoch uint64) {
	if epoch != e.epoch {
		e.epoch, e.most = epoch, e.now
	}
	e.most = max(e.most, e.now)
}

// drafts keeps drafts for reuse. It is safe for concurrent use.
type drafts struct {
	mu   sync.Mutex
	idle []*Draft
}

func (l *drafts) take() *Draft {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle)
	if n == 0 {
		return new(Draft)
	}
	d := l.idle[n-1]
	l.idle = l.idle[:n-1]
	*d = Draft{Refs: d.Refs[:0], Cuts: d.Cuts[:0], In: d.In[:0], one: d.one, entries: d.entries}
	return d
}

// Release ends the use of a draft whose batch was delivered: its pieces, copies and closed slots go
// back to the window, and the draft is used again. It may be called from any goroutine, once for
// each draft.
func (p *Planner) Release(d *Draft) {
	if p.Window.Release(d.Use) {
		p.idle.mu.Lock()
		p.idle.idle = append(p.idle.idle, d)
		p.idle.mu.Unlock()
	}
}
