package account

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// TestCauses takes the clock through every report and checks the cause after each.
func TestCauses(t *testing.T) {
	c, p := new(Clock), new(Piece)
	w := NewWorker(c, nil)
	w.Begin(p)
	trace := func(phase objstore.Phase, delta int32) func() { return func() { w.Trace(phase, delta) } }
	plan := func(at Planning) func() { return func() { c.Plan(at) } }
	move := func(to Stage) func() { return func() { c.Move(p, to) } }
	c.Begin(time.Now())
	for _, step := range []struct {
		what   string
		report func()
		want   Cause
	}{
		{"nothing was reported", func() {}, Order},
		{"the planner reads tables", plan(PlanStore), Request},
		{"the planner waits for memory", plan(PlanMemory), Memory},
		{"a piece without memory is awaited", func() { c.Await(p, false) }, Memory},
		{"no worker is free to take it", plan(PlanQueue), Window},
		{"it is in the queue", move(Queued), Window},
		{"it is read", move(Reading), Request},
		{"its read waits for its turn", trace(objstore.PhaseTurn, 1), Window},
		{"a part of it has its turn", trace(objstore.PhaseRequest, 1), Request},
		{"a part pauses", trace(objstore.PhasePause, 1), Throttled},
		{"the pause ends", trace(objstore.PhasePause, -1), Request},
		{"the turn ends", trace(objstore.PhaseTurn, -1), Request},
		{"the cache is used", trace(objstore.PhaseCache, 1), Cache},
		{"the cache was used", trace(objstore.PhaseCache, -1), Request},
		{"a phase of a later version", trace(objstore.Phases, 1), Request},
		{"its stored bytes have no room", move(Room), Memory},
		{"it is decoded", move(Decoding), Decode},
		{"it is read for the second time", func() { p.SetEvicted(true); c.changed(p) }, Memory},
		{"it is not", func() { p.SetEvicted(false); c.changed(p) }, Decode},
		{"it serves later batches", func() { c.Await(p, true) }, Window},
		{"nothing is awaited", func() { c.Await(nil, false); c.Plan(PlanOrder) }, Order},
		{"the user's function runs", func() { c.Map(true) }, Map},
		{"it has returned", func() { c.Map(false) }, Order},
		{"a batch is ready", func() { c.Hand(1) }, Order},
	} {
		step.report()
		c.mu.Lock()
		got := c.cause
		c.mu.Unlock()
		if got != step.want {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
	c.Hand(-1)
	c.End(time.Now())
	total := c.Totals().Sum()
	c.Move(p, Reading)
	if got := c.Totals().Sum(); got != total {
		t.Errorf("%v counted while nobody waited", got-total)
	}
	if c.Count(Reading) != 1 || c.Count(Decoding) != 0 {
		t.Errorf("%d pieces are read and %d decoded, want 1 and 0", c.Count(Reading), c.Count(Decoding))
	}
}

// TestTotalsAddUp compares the causes with the wait measured by the consumer itself.
func TestTotalsAddUp(t *testing.T) {
	c, p := new(Clock), new(Piece)
	stop := make(chan struct{})
	var reports sync.WaitGroup
	reports.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c.Move(p, Stage(i%int(stages)))
			c.Plan(Planning(i % 4))
			c.Await(p, i%3 == 0)
		}
	})
	var waited time.Duration
	for i := range 200 {
		asked := time.Now()
		if i%2 == 0 {
			c.Begin(asked)
			time.Sleep(50 * time.Microsecond)
		}
		waited += c.End(asked).Sub(asked)
	}
	close(stop)
	reports.Wait()
	if got := c.Totals().Sum(); got != waited {
		t.Errorf("the causes add up to %v, the wait is %v", got, waited)
	}
}

type meter struct {
	read, decode time.Duration
	pieces, busy int
}

func (m *meter) Landed(read, decode time.Duration) {
	m.read, m.decode, m.pieces = m.read+read, m.decode+decode, m.pieces+1
}

func (m *meter) Throttled() { m.busy++ }

// TestWorkerMeasures checks which spans a worker counts as reading and which as decoding.
func TestWorkerMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 5 * time.Millisecond
		var m meter
		w := NewWorker(new(Clock), &m)
		w.Begin(new(Piece))
		w.At(Reading)
		w.Trace(objstore.PhaseThrottled, 1)
		w.Trace(objstore.PhaseThrottled, -1)
		time.Sleep(2 * pause)
		w.At(Decoding)
		time.Sleep(pause) // waits for its turn
		w.Turn()
		w.At(Landed)
		if m.pieces != 1 || m.busy != 1 || m.read != 2*pause || m.decode != 0 {
			t.Errorf("%+v", m)
		}
		var none *Worker
		none.At(Reading)
		none.Turn()
	})
}

// BenchmarkPiece is what the account costs for a piece that the consumer waits for, from its place
// in the queue to the batch handed over.
func BenchmarkPiece(b *testing.B) {
	c, p := new(Clock), new(Piece)
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		c.Begin(now)
		c.Plan(PlanQueue)
		c.Move(p, Queued)
		c.Plan(PlanOrder)
		c.Await(p, false)
		for _, to := range []Stage{Reading, Room, Reading, Decoding, Landed} {
			c.Move(p, to)
		}
		c.Await(nil, false)
		c.Hand(1)
		c.End(now)
		c.Hand(-1)
	}
}
