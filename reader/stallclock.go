package reader

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// cause is what the consumer waits for at a moment; see Stalls.
type cause int

const (
	causeRequest cause = iota
	causeThrottled
	causeCache
	causeWindow
	causeDecode
	causeMemory
	causeOrder
	causeMap
	causes
)

// String is the name in metrics and JSON.
func (c cause) String() string {
	return [causes]string{"request", "throttled", "cache", "window", "decode", "memory", "order", "map"}[c]
}

// doing is where a piece is on its way.
type doing int32

const (
	pieceUnasked  doing = iota // it has no memory yet
	pieceQueued                // it waits for a worker
	pieceReading               // it is read, see piece.phases
	pieceRoom                  // its stored bytes wait for room
	pieceDecoding              // it is decoded, or waits its turn
	pieceLanded
	pieceStates
)

// planning is what the planner is at.
type planning int32

const (
	planOrder  planning = iota // the order
	planStore                  // reads tables of a shard, or opens one
	planMemory                 // waits for memory of a piece
	planQueue                  // waits for room in the queue of the workers
)

// stallClock gives every moment of the consumer's wait its cause. The assembler says which piece the next batch needs, the
// planner and the workers what they are at. All of them only say so: the cause is looked for, under mu, whenever what it hangs on
// may have changed, and only while the consumer waits. A stream calls it a few times a piece and twice a batch, never for a sample.
type stallClock struct {
	awaited atomic.Pointer[piece] // what the assembler waits for
	planner atomic.Int32          // planning
	at      [pieceStates]atomic.Int32
	paused  atomic.Int32
	// For the benchmarks that tell what the account costs: there is none, or all is done so many times more.
	off   bool
	again int

	mu      sync.Mutex
	waiting bool // the consumer is in Next
	since   time.Time
	cause   cause
	totals  [causes]time.Duration
	fills   bool // the awaited piece is beyond the batch's own share
	mapping bool
	ready   int // batches that are assembled and not taken
}

// begin says that the consumer, which came at that time, has to wait.
func (c *stallClock) begin(entered time.Time) {
	if c.off {
		return
	}
	for range 1 + c.again {
		c.mu.Lock()
		c.waiting, c.since, c.cause = true, entered, c.find()
		c.mu.Unlock()
	}
}

// end says that the consumer, which came at that time, goes, and returns the time. If it has not waited, the batch was handed over.
func (c *stallClock) end(entered time.Time) (now time.Time) {
	if c.off {
		return time.Now()
	}
	waited := false
	for i := range 1 + c.again {
		c.mu.Lock()
		if waited = waited || c.waiting; waited {
			c.book()
			now = c.since
		} else if now = time.Now(); i == 0 {
			c.totals[causeOrder] += now.Sub(entered)
		}
		c.waiting = false
		c.mu.Unlock()
	}
	return now
}

// book adds what has passed to its cause; c.mu is held.
func (c *stallClock) book() {
	now := time.Now()
	c.totals[c.cause] += now.Sub(c.since)
	c.since = now
}

// look finds out whether the cause is another now, and books what has passed if so, or if it is told that it did before; c.mu is held.
func (c *stallClock) look(before bool) (booked bool) {
	if !c.waiting {
		return false
	}
	found := c.find()
	if found == c.cause && !before {
		return false
	}
	c.book()
	c.cause = found
	return true
}

// find is the cause at this moment; c.mu is held.
func (c *stallClock) find() cause {
	p := c.awaited.Load()
	switch {
	case c.ready > 0:
		return causeOrder
	case c.mapping:
		return causeMap
	case p == nil:
		return c.plans()
	}
	found := c.of(p)
	switch found {
	case causeThrottled, causeMemory, causeOrder:
		return found
	}
	switch {
	case p.evicted.Load():
		return causeMemory
	case c.fills:
		return causeWindow
	}
	return found
}

// of is what a piece is at.
func (c *stallClock) of(p *piece) cause {
	switch doing(p.doing.Load()) {
	case pieceUnasked:
		return c.plans()
	case pieceQueued:
		return causeWindow
	case pieceRoom:
		return causeMemory
	case pieceReading:
		switch {
		case p.phases[objstore.PhasePause].Load() > 0:
			return causeThrottled
		case p.phases[objstore.PhaseCache].Load() > 0:
			return causeCache
		case p.phases[objstore.PhaseTurn].Load() > 0 && p.phases[objstore.PhaseRequest].Load() == 0:
			return causeWindow
		}
		return causeRequest
	}
	return causeDecode // landed too: the assembler waits for a processor
}

// plans is what the planner keeps everybody waiting with.
func (c *stallClock) plans() cause {
	switch planning(c.planner.Load()) {
	case planStore:
		return causeRequest
	case planMemory:
		return causeMemory
	case planQueue:
		return causeWindow
	}
	return causeOrder
}

// await says which piece the assembler waits for, nil for none.
func (c *stallClock) await(p *piece, fills bool) {
	if c.off {
		return
	}
	booked := false
	for range 1 + c.again {
		c.awaited.Store(p)
		c.mu.Lock()
		c.fills = fills
		booked = c.look(booked)
		c.mu.Unlock()
	}
}

// plan says what the planner is at.
func (c *stallClock) plan(at planning) {
	if c.off {
		return
	}
	moved, booked := false, false
	for range 1 + c.again {
		if moved = planning(c.planner.Swap(int32(at))) != at || moved; moved {
			c.mu.Lock()
			booked = c.look(booked)
			c.mu.Unlock()
		}
	}
}

// maps says whether the assembler runs Map.
func (c *stallClock) maps(on bool) {
	if c.off {
		return
	}
	booked := false
	for range 1 + c.again {
		c.mu.Lock()
		c.mapping = on
		booked = c.look(booked)
		c.mu.Unlock()
	}
}

// hand counts a batch that is ready (+1), or was taken (-1).
func (c *stallClock) hand(delta int) {
	if c.off {
		return
	}
	booked := false
	for range 1 + c.again {
		c.mu.Lock()
		c.ready += delta
		booked = c.look(booked)
		c.mu.Unlock()
		delta = 0
	}
}

// move says where a piece is.
func (c *stallClock) move(p *piece, to doing) {
	if c.off {
		return
	}
	booked := false
	for range 1 + c.again {
		from := doing(p.doing.Swap(int32(to)))
		c.at[from].Add(-1)
		c.at[to].Add(1)
		booked = c.moved(p, booked)
	}
}

// moved looks for the cause again if it is the awaited piece that changed. Whoever changes a piece and whoever awaits it both look
// afterwards, so that the later of them sees both.
func (c *stallClock) moved(p *piece, before bool) (booked bool) {
	if c.awaited.Load() != p {
		return false
	}
	c.mu.Lock()
	booked = c.look(before)
	c.mu.Unlock()
	return booked
}

// stalls is the account so far, the wait under way included.
func (c *stallClock) stalls() Stalls {
	c.mu.Lock()
	if c.waiting {
		c.book()
	}
	t := c.totals
	c.mu.Unlock()
	return Stalls{
		Request: t[causeRequest], Throttled: t[causeThrottled], Cache: t[causeCache], Window: t[causeWindow], Decode: t[causeDecode],
		Memory: t[causeMemory], Order: t[causeOrder], Map: t[causeMap],
	}
}

// follow tells the clock what a worker's piece is at, and the meters how long that took. The methods of nil do nothing.
type follow struct {
	clock  *stallClock
	piece  *piece
	meters *meters // nil where nobody wants to know
	is     doing
	since  time.Time
	took   [pieceStates]time.Duration
}

// begin turns to another piece.
func (f *follow) begin(p *piece) {
	f.piece = p
	if f.meters != nil {
		f.is, f.since, f.took = pieceQueued, time.Now(), [pieceStates]time.Duration{}
	}
}

func (f *follow) at(d doing) {
	if f == nil {
		return
	}
	f.clock.move(f.piece, d)
	if f.meters == nil {
		return
	}
	f.pass(f.is)
	if f.is = d; d == pieceLanded {
		f.meters.pieces.Add(1)
		f.meters.read.Add(int64(f.took[pieceReading]))
		f.meters.decode.Add(int64(f.took[pieceDecoding]))
	}
}

// turn says that decoding begins now: what it waited to do so is not its time.
func (f *follow) turn() {
	if f != nil && f.meters != nil {
		f.pass(pieceQueued)
	}
}

// pass books the time since the last call.
func (f *follow) pass(as doing) {
	now := time.Now()
	f.took[as] += now.Sub(f.since)
	f.since = now
}

// Trace is objstore.Tracer's.
func (f *follow) Trace(p objstore.Phase, delta int32) {
	if p < 0 || p >= objstore.Phases {
		return
	}
	if p == objstore.PhasePause {
		f.clock.paused.Add(delta)
	}
	if p == objstore.PhaseThrottled && delta > 0 && f.meters != nil {
		f.meters.throttled.Add(1)
	}
	f.piece.phases[p].Add(delta)
	f.clock.moved(f.piece, false)
}
