package account

import (
	"sync/atomic"

	"github.com/shardtool/shardtool/objstore"
)

// Piece is the progress of one piece. The zero value is a piece that nobody asked for. It may be
// read and changed by several goroutines at once.
type Piece struct {
	stage   atomic.Int32
	phases  [objstore.Phases]atomic.Int32
	evicted atomic.Bool
}

// SetEvicted records whether the piece lost its memory and has to be read again.
func (p *Piece) SetEvicted(evicted bool) { p.evicted.Store(evicted) }

// cause returns what a wait for the piece is a wait for, given what the planner does.
func (p *Piece) cause(planner Planning) Cause {
	switch Stage(p.stage.Load()) {
	case Unasked:
		return planner.cause()
	case Queued:
		return Window
	case Room:
		return Memory
	case Reading:
		switch {
		case p.phases[objstore.PhasePause].Load() > 0:
			return Throttled
		case p.phases[objstore.PhaseCache].Load() > 0:
			return Cache
		case p.phases[objstore.PhaseTurn].Load() > 0 && p.phases[objstore.PhaseRequest].Load() == 0:
			return Window
		}
		return Request
	}
	return Decode // Landed too: the assembler waits for a processor
}

// cause returns what a wait for the planner is a wait for.
func (p Planning) cause() Cause {
	switch p {
	case PlanStore:
		return Request
	case PlanMemory:
		return Memory
	case PlanQueue:
		return Window
	}
	return Order
}
