// Package assemble turns drafts into batches: it waits for the blocks of a batch and finds the
// samples or rows that its references draw.
//
//	Draft ──▶ wait for its pieces ──▶ samples point into the pieces          (the usual case)
//	      ──▶ wait for one piece, copy its samples out, free it, go on       (Draft.Copied)
//	      ──▶ Held: the references without holes; Samples or Rows: what they draw
//
// One goroutine assembles, so batches come in the order in which they were planned.
package assemble

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Form is the form of a batch: Samples or Rows. Places count references in the draft, until close.
type Form interface {
	// begin makes room for the places of a draft.
	begin(d *planner.Draft, w *window.Window)
	// land takes note of a piece that is in memory. Pieces come in order, each of a window.Use once.
	land(p *window.Piece)
	// find fills ascending places with what a level has of them, and copies it if the draft is copied.
	// An error tells why the n-th place cannot be filled; the places before it were.
	find(level int, places []int32) (n int, err error)
	// close removes the places of holes, and counts the bytes.
	close(h *Held)
}

// Assembler fills batches. It is for one goroutine.
type Assembler struct {
	Window  *window.Window
	Clock   *account.Clock
	Landing <-chan struct{} // holds a token when the piece has landed that the assembler waits for
	// Skip decides about a sample that cannot be delivered: if it returns nil, the sample is left out;
	// an error ends the stream.
	Skip func(p *window.Piece, r *order.Ref, cause error) error

	// For the draft at hand: by level the places to find, and the places of holes.
	places [][]int32
	holes  []int32
	lost   bool      // places that were to be found became holes
	lists  [][]int32 // memory of places
	// failed is the error of the first place that has one, failedAt that place.
	failed   error
	failedAt int32
}

// Fill waits for the pieces of a draft and finds what it draws.
func (a *Assembler) Fill(ctx context.Context, d *planner.Draft, h *Held, f Form) error {
	h.begin(d)
	f.begin(d, a.Window)
	a.list(d)
	if d.Copied {
		if err := a.Window.CopyTurn(ctx, d.Use, d.Bytes); err != nil {
			return err
		}
	}
	for u, p := range d.Fresh() {
		if err := a.wait(ctx, d, p); err != nil {
			return err
		}
		f.land(p)
		if !d.Copied {
			continue
		}
		for k, rest := range a.places {
			n := 0
			for n < len(rest) && (d.In[k][rest[n]] == int32(u) || d.In[k][rest[n]] < 0) {
				n++
			}
			a.find(d, f, k, rest[:n])
			a.places[k] = rest[n:]
		}
		a.Window.Gathered(d.Use, p)
	}
	for k, rest := range a.places {
		a.find(d, f, k, rest)
	}
	if a.failed != nil {
		return a.failed
	}
	h.close(a.holes)
	f.close(h)
	return nil
}

// list lists the places to find, in order, or piece by piece where the draft is copied, and the
// holes of removed samples.
func (a *Assembler) list(d *planner.Draft) {
	a.failed, a.failedAt, a.lost = nil, int32(len(d.Refs)), false
	a.places = slices.Grow(a.places[:0], len(d.In))[:len(d.In)]
	holes := a.holes[:0]
	for k, all := range d.In {
		places := slices.Grow(a.buffer(k), len(d.Refs))
		for i, in := range all {
			switch {
			case in >= 0:
				places = append(places, int32(i))
			case k > 0:
			default:
				holes = append(holes, int32(i))
			}
		}
		a.places[k], a.lists[k] = places, places
		if d.Copied {
			slices.SortStableFunc(places, func(x, y int32) int { return int(all[x] - all[y]) })
		}
	}
	a.holes = holes
}

// buffer returns the memory of the list of a level.
func (a *Assembler) buffer(level int) []int32 {
	if level == len(a.lists) {
		a.lists = append(a.lists, nil)
	}
	return a.lists[level][:0]
}

// find fills ascending places with what a level has of them. A sample that cannot be delivered is
// skipped, at all levels, or ends the stream.
func (a *Assembler) find(d *planner.Draft, f Form, level int, places []int32) {
	in := d.In[level]
	if a.lost {
		places = slices.DeleteFunc(places, func(i int32) bool { return in[i] < 0 })
	}
	for len(places) > 0 && places[0] < a.failedAt {
		n, err := f.find(level, places)
		if err == nil {
			return
		}
		i := places[n]
		r, p := &d.Refs[i], d.Pieces[in[i]]
		if blk := int(r.Block) - p.First; p.Table.Err(blk) == nil { // else it has a place
			err = format.Place{Shard: p.Job.Shard.Name, Block: p.Job.Block + blk, Offset: -1}.Wrap(err)
		}
		a.holes, places = append(a.holes, i), places[n+1:]
		for k := range d.In {
			d.In[k][i], a.lost = -1, true
		}
		if err = a.Skip(p, r, err); err != nil && i < a.failedAt {
			a.failed, a.failedAt = err, i
		}
	}
}

// wait waits until a piece is filled.
func (a *Assembler) wait(ctx context.Context, d *planner.Draft, p *window.Piece) error {
	ahead := d.Await(p)
	if p.Landed() {
		return nil
	}
	a.Clock.Await(&p.Piece, ahead)
	defer a.Clock.Await(nil, false)
	p.Await(true)
	defer p.Await(false)
	for !p.Landed() {
		select {
		case <-a.Landing:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
