package account

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock assigns every moment of the consumer's wait to its cause. The zero value is ready for use.
// All methods may be called from several goroutines at once.
type Clock struct {
	awaited atomic.Pointer[Piece] // what the assembler waits for
	planner atomic.Int32          // Planning
	at      [stages]atomic.Int32  // pieces by stage
	paused  atomic.Int32          // reads that wait to ask again

	mu      sync.Mutex
	waiting bool // the consumer waits
	since   time.Time
	cause   Cause
	totals  Totals
	ahead   bool // the awaited piece mostly serves later batches
	mapping bool
	ready   int // batches assembled and not taken
}

// Begin starts a wait of the consumer, which asked for a batch at the given time.
func (c *Clock) Begin(asked time.Time) {
	c.mu.Lock()
	c.waiting, c.since, c.cause = true, asked, c.find()
	c.mu.Unlock()
}

// End ends the call in which the consumer asked at the given time, and returns the current time.
// Without a wait in between, the time went into handing the batch over.
func (c *Clock) End(asked time.Time) (now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		c.record()
		c.waiting = false
		return c.since
	}
	now = time.Now()
	c.totals[Order] += now.Sub(asked)
	return now
}

// record adds the time since the last call to its cause; c.mu is held.
func (c *Clock) record() {
	now := time.Now()
	c.totals[c.cause] += now.Sub(c.since)
	c.since = now
}

// look evaluates the cause again; if it changed, look records the elapsed time. c.mu is held.
func (c *Clock) look() {
	if !c.waiting {
		return
	}
	if found := c.find(); found != c.cause {
		c.record()
		c.cause = found
	}
}

// find returns the cause at this moment; c.mu is held.
func (c *Clock) find() Cause {
	planner := Planning(c.planner.Load())
	p := c.awaited.Load()
	switch {
	case c.ready > 0:
		return Order
	case c.mapping:
		return Map
	case p == nil:
		return planner.cause()
	}
	switch found := p.cause(planner); {
	case found == Throttled, found == Memory, found == Order:
		return found
	case p.evicted.Load():
		return Memory
	case c.ahead:
		return Window
	default:
		return found
	}
}

// Await reports which piece the assembler waits for, or nil when it waits for none. ahead reports
// that the piece mostly serves later batches: it enlarges the window that samples are shuffled in.
func (c *Clock) Await(p *Piece, ahead bool) {
	c.awaited.Store(p)
	c.mu.Lock()
	c.ahead = ahead
	c.look()
	c.mu.Unlock()
}

// Plan reports what the planner does from now on.
func (c *Clock) Plan(at Planning) {
	if Planning(c.planner.Swap(int32(at))) != at {
		c.mu.Lock()
		c.look()
		c.mu.Unlock()
	}
}

// Map reports whether the assembler runs the user's function.
func (c *Clock) Map(on bool) {
	c.mu.Lock()
	c.mapping = on
	c.look()
	c.mu.Unlock()
}

// Hand counts a batch that is ready (+1) or was taken (-1).
func (c *Clock) Hand(delta int) {
	c.mu.Lock()
	c.ready += delta
	c.look()
	c.mu.Unlock()
}

// Move reports the stage that a piece has reached.
func (c *Clock) Move(p *Piece, to Stage) {
	from := Stage(p.stage.Swap(int32(to)))
	c.at[from].Add(-1)
	c.at[to].Add(1)
	c.changed(p)
}

// changed evaluates the cause again if p is the awaited piece. Whoever changes a piece and whoever
// awaits it both look afterwards, so the later of the two sees both changes.
func (c *Clock) changed(p *Piece) {
	if c.awaited.Load() != p {
		return
	}
	c.mu.Lock()
	c.look()
	c.mu.Unlock()
}

// Totals returns the time waited so far, including a wait under way.
func (c *Clock) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		c.record()
	}
	return c.totals
}

// Count returns how many pieces are at a stage.
func (c *Clock) Count(s Stage) int { return int(c.at[s].Load()) }

// Paused returns how many reads wait to ask again.
func (c *Clock) Paused() int { return int(c.paused.Load()) }
