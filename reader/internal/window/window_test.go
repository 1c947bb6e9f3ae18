package window

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// batch opens a slot of n pieces and pins them.
func batch(w *Window, number uint64, from, n, size int) (*Use, *Slot) {
	s := w.OpenSlot()
	u := w.Begin()
	for i := range n {
		u.Pieces = append(u.Pieces, w.Open(s, ID{Number: from + i}, func(p *Piece) {
			p.Plan, p.Blocks = fetch.Plan{Size: size, Decoded: size}, 1
		}))
	}
	w.Pin(u, 0, number)
	w.Release(u) // the planner adds no more
	return u, s
}

// TestBudget runs batches through a window that has room for two of them. Nothing is evicted that a
// batch uses, and what is held stays within the limit.
func TestBudget(t *testing.T) {
	const size, pieces = 4096, 4
	w := New(2*pieces*size, new(account.Clock))
	random := rand.New(rand.NewPCG(1, 2))
	type held struct {
		use  *Use
		slot *Slot
	}
	var out []held
	for number := range 2000 {
		u, s := batch(w, uint64(number+1), random.IntN(40), pieces, size)
		for len(out) > 0 && (len(out) == 2 || random.IntN(2) == 0) {
			h := out[0]
			out = out[1:]
			h.use.Closed = append(h.use.Closed, h.slot)
			if !w.Release(h.use) {
				t.Fatal("the window is closed")
			}
		}
		w.Urgent(len(out) == 0)
		admitted := true
		for i, p := range u.Pieces {
			switch w.Admit(u, p, i, true) {
			case Wait:
				if len(out) == 0 {
					t.Fatal("no room for what the consumer waits for")
				}
				admitted = false
			case Admitted:
				if len(p.Buf) != size || p.Landed() {
					t.Fatalf("a buffer of %d bytes", len(p.Buf))
				}
				p.Land()
			case Present:
				if p.here && !p.Landed() {
					t.Fatal("a piece is present and was never filled")
				}
			}
		}
		if !admitted { // as if the batch had been given up
			u.Closed = append(u.Closed, s)
			w.Release(u)
			continue
		}
		for _, h := range out {
			for _, p := range h.use.Pieces {
				if !p.here || !p.Landed() {
					t.Fatal("a piece of a batch in hand was evicted")
				}
			}
		}
		out = append(out, held{u, s})
	}
	evicted, most := w.Stats()
	if most > w.Size() {
		t.Errorf("%d bytes were held, the limit is %d", most, w.Size())
	}
	t.Logf("%d blocks evicted, %d bytes held at most", evicted, most)
	w.Close(true)
	if w.Release(out[0].use) {
		t.Error("a batch was released after Close")
	}
}

// TestEvict checks that a piece of an open slot makes way for what the consumer waits for, and only
// then.
func TestEvict(t *testing.T) {
	w := New(4096, new(account.Clock))
	first, _ := batch(w, 1, 0, 1, 4096)
	if w.Admit(first, first.Pieces[0], 0, true) != Admitted {
		t.Fatal("an empty window has no room")
	}
	p := first.Pieces[0]
	p.Land()
	w.Release(first) // its slot stays open
	second, _ := batch(w, 2, 1, 1, 4096)
	if got := w.Admit(second, second.Pieces[0], 0, true); got != Wait {
		t.Fatalf("admitted (%d) though nobody waits", got)
	}
	w.Urgent(true)
	<-w.Freed()
	if got := w.Admit(second, second.Pieces[0], 0, false); got != Wait {
		t.Fatalf("admitted (%d) though the consumer waits for an earlier batch", got)
	}
	if got := w.Admit(second, second.Pieces[0], 0, true); got != Admitted {
		t.Fatalf("not admitted: %d", got)
	}
	if evicted, _ := w.Stats(); evicted != 1 || p.here || p.Landed() {
		t.Errorf("%d blocks were evicted", evicted)
	}
}

// TestShared checks that the pieces of batches which share a Use stay until the last of them is
// released, and the planner has ended it.
func TestShared(t *testing.T) {
	w := New(4*4096, new(account.Clock))
	u, s := w.Begin(), w.OpenSlot()
	for i := range 2 {
		u.Pieces = append(u.Pieces, w.Open(s, ID{Number: i}, func(p *Piece) { p.Plan, p.Blocks = fetch.Plan{Size: 4096}, 1 }))
		w.Pin(u, i, uint64(i+1))
		if w.Admit(u, u.Pieces[i], i, true) != Admitted {
			t.Fatal("there is no room")
		}
		u.Pieces[i].Land()
	}
	pieces := u.Pieces
	if pieces[0].BroughtBy != 1 || pieces[1].BroughtBy != 2 {
		t.Error("a batch waits for a piece that the one before it brings")
	}
	u.Closed = append(u.Closed, s)
	for i := range 3 { // two batches and the planner
		if !pieces[0].here || !pieces[1].here || w.evict() {
			t.Fatalf("a piece is gone after %d of 3 releases", i)
		}
		if !w.Release(u) {
			t.Fatal("the window is closed")
		}
	}
	if pieces[0].here || pieces[1].here || w.pool.Lent() != 0 {
		t.Errorf("%d bytes are out after the last release", w.pool.Lent())
	}
	if w.Begin() != u || len(u.Pieces)+len(u.Closed) != 0 {
		t.Errorf("%+v", u)
	}
}

// TestCopies checks that the pieces of a copied batch follow one another in a window that holds
// only one of them, beside the copies.
func TestCopies(t *testing.T) {
	const size = 8192
	w := New(3*size, new(account.Clock))
	u, _ := batch(w, 1, 0, 5, size)
	u.Copied, u.Bytes = true, 5*1000
	w.Order(u.Pieces)
	w.Urgent(true)
	for i, p := range u.Pieces {
		if got := w.Admit(u, p, i, true); got != Admitted {
			t.Fatalf("piece %d: %d", i, got)
		}
		if buf := w.Copy(u, 1000); cap(buf) < 1000 {
			t.Fatalf("a copy of %d bytes", cap(buf))
		}
		p.Land()
		w.Gathered(u, p)
	}
	if _, most := w.Stats(); most > 3*size+5*4096 {
		t.Errorf("%d bytes were held", most)
	}
	w.Release(u)
	if w.pool.Lent() != 0 && w.pool.Lent() != int64(len(w.resident)*size) {
		t.Errorf("%d bytes are still out", w.pool.Lent())
	}
}

// TestKeep: a piece that nothing draws from any more stays, is there for the next epoch, and goes
// when another one needs the room.
func TestKeep(t *testing.T) {
	const size = 4096
	w := New(2*size, new(account.Clock))
	w.Keep = true
	w.Urgent(true)
	read := func(number uint64, from, n int) (admitted int) {
		u, s := batch(w, number, from, n, size)
		u.Closed = append(u.Closed, s)
		for i, p := range u.Pieces {
			if w.Admit(u, p, i, true) == Admitted {
				admitted++
				p.Land()
			}
		}
		w.Release(u)
		return admitted
	}
	for number, c := range []struct{ from, n, admitted int }{{0, 2, 2}, {0, 2, 0}, {1, 1, 0}, {2, 2, 2}, {0, 1, 1}} {
		if got := read(uint64(number+1), c.from, c.n); got != c.admitted {
			t.Errorf("batch %d: %d pieces were read, want %d", number, got, c.admitted)
		}
	}
	if evicted, most := w.Stats(); evicted != 0 || most > 2*size || len(w.pieces) != 2 {
		t.Errorf("%d blocks count as evicted, %d bytes were held, %d pieces are known", evicted, most, len(w.pieces))
	}
}

// TestEnd: a window that has ended keeps nothing that no batch uses, whether the batch was released
// before or after, and what a batch uses stays as it is.
func TestEnd(t *testing.T) {
	const size = 4096
	w := New(4*size, new(account.Clock))
	w.Keep = true
	w.Urgent(true)
	var uses []*Use
	for number := range 2 {
		u, s := batch(w, uint64(number+1), 2*number, 2, size)
		u.Closed = append(u.Closed, s)
		for i, p := range u.Pieces {
			if w.Admit(u, p, i, true) != Admitted {
				t.Fatal("a piece was not admitted")
			}
			p.Buf[0] = byte(p.Number + 1)
			p.Land()
		}
		uses = append(uses, u)
	}
	w.Release(uses[0])
	if n := w.pool.Lent(); n != 4*size {
		t.Fatalf("%d bytes are out before the end", n)
	}
	w.End()
	if n := w.pool.Lent(); n != 2*size {
		t.Errorf("%d bytes are out after the end, beside a batch of %d", n, 2*size)
	}
	for _, p := range uses[1].Pieces {
		if p.Buf[0] != byte(p.Number+1) {
			t.Error("a piece of a batch in hand has changed")
		}
	}
	w.Release(uses[1])
	if n := w.pool.Lent(); n != 0 || len(w.pieces) != 0 {
		t.Errorf("%d bytes are out at last, and %d pieces are known", n, len(w.pieces))
	}
}

// TestTurn: where another order follows, what is in memory stays until a slot opens it, or until
// something else needs the room, and a piece that a worker fills is not touched. It may follow End.
func TestTurn(t *testing.T) {
	const size = 4096
	w := New(4*size, new(account.Clock))
	u, s := batch(w, 1, 0, 4, size)
	for i, p := range u.Pieces {
		if w.Admit(u, p, i, true) != Admitted {
			t.Fatal("there is no room")
		}
		if i != 2 {
			p.Land()
		}
	}
	pieces := slices.Clone(u.Pieces)
	w.Drop(u, pieces)
	w.End()
	w.Turn(false)
	w.CloseSlot(s)
	for i, p := range pieces {
		if !p.here {
			t.Fatalf("piece %d is gone", i)
		}
	}
	next, slot := batch(w, 2, 1, 1, size) // the new order needs piece 1
	if next.Pieces[0] != pieces[1] || w.Admit(next, pieces[1], 0, false) != Present {
		t.Error("a piece in memory was not found")
	}
	other, _ := batch(w, 3, 10, 3, size)
	for i, want := range []Outcome{Admitted, Admitted, Wait} { // in place of pieces 0 and 3
		if got := w.Admit(other, other.Pieces[i], i, false); got != want {
			t.Fatalf("piece %d: %d, want %d", 10+i, got, want)
		}
	}
	if pieces[0].here || pieces[3].here || !pieces[1].here || !pieces[2].here {
		t.Error("the room was taken from a piece that is needed, or that is being filled")
	}
	pieces[2].Land()
	if got := w.Admit(other, other.Pieces[2], 2, false); got != Admitted || pieces[2].here {
		t.Errorf("a piece that nothing needs keeps its room: %d", got)
	}
	next.Closed = append(next.Closed, slot)
	w.Release(next)
	if pieces[1].here {
		t.Error("a piece stays though its slot was closed")
	}
}

// TestTurnTwice: an order that is dropped in its turn opened a slot of a piece that a worker still
// fills, drew nothing from it and closed it. The piece stays until it has landed, also where the
// consumer waits for room.
func TestTurnTwice(t *testing.T) {
	const size = 4096
	w := New(size, new(account.Clock))
	u, s := batch(w, 1, 0, 1, size)
	p := u.Pieces[0]
	if w.Admit(u, p, 0, true) != Admitted {
		t.Fatal("there is no room")
	}
	w.Drop(u, slices.Clone(u.Pieces))
	w.Turn(false)
	w.CloseSlot(s)
	again := w.OpenSlot()
	if w.Open(again, ID{}, nil) != p {
		t.Fatal("the piece is not found")
	}
	w.Urgent(true)
	next, _ := batch(w, 2, 1, 1, size)
	for _, opened := range []bool{true, false} {
		if !opened {
			w.CloseSlot(again)
		}
		if w.evict() || !p.here || p.Table == nil || w.pieces[ID{}] != p {
			t.Fatalf("a piece that a worker fills is gone; its slot is open: %v", opened)
		}
	}
	p.Land()
	if got := w.Admit(next, next.Pieces[0], 0, true); got != Admitted || p.here || w.pool.Lent() != size {
		t.Errorf("the piece keeps its room after it landed: %d, %d bytes", got, w.pool.Lent())
	}
}
