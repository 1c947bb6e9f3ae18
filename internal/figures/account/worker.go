package account

import (
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Meter measures the store for whoever tunes the stream.
type Meter interface {
	// Landed counts a piece and the time that reading and decoding it took.
	Landed(read, decode time.Duration)
	// Throttled counts an answer that asked for less load.
	Throttled()
}

// Worker reports the progress of one worker's pieces to the clock, and what they took to the meter.
// It is an objstore.Tracer of the worker's reads. A worker has one piece at a time; its store may
// trace from several goroutines. The methods of a nil Worker do nothing.
type Worker struct {
	clock *Clock
	meter Meter // nil where nothing is tuned

	piece *Piece
	stage Stage
	since time.Time
	took  [stages]time.Duration
}

// NewWorker returns the account of a worker. meter may be nil.
func NewWorker(c *Clock, meter Meter) *Worker { return &Worker{clock: c, meter: meter} }

// Begin turns to another piece, which waited in the queue so far.
func (w *Worker) Begin(p *Piece) {
	w.piece = p
	if w.meter != nil {
		w.stage, w.since, w.took = Queued, time.Now(), [stages]time.Duration{}
	}
}

// At reports the stage that the piece has reached.
func (w *Worker) At(s Stage) {
	if w == nil {
		return
	}
	w.clock.Move(w.piece, s)
	if w.meter == nil {
		return
	}
	w.pass(w.stage)
	if w.stage = s; s == Landed {
		w.meter.Landed(w.took[Reading], w.took[Decoding])
	}
}

// Turn reports that decoding begins now. The time spent waiting for that turn is not decoding time.
func (w *Worker) Turn() {
	if w != nil && w.meter != nil {
		w.pass(Queued)
	}
}

// pass adds the time since the last call to a stage.
func (w *Worker) pass(s Stage) {
	now := time.Now()
	w.took[s] += now.Sub(w.since)
	w.since = now
}

// Trace implements objstore.Tracer.
func (w *Worker) Trace(p objstore.Phase, delta int32) {
	if p < 0 || p >= objstore.Phases {
		return // a phase of a later version
	}
	if p == objstore.PhasePause {
		w.clock.paused.Add(delta)
	}
	if p == objstore.PhaseThrottled && delta > 0 && w.meter != nil {
		w.meter.Throttled()
	}
	w.piece.phases[p].Add(delta)
	w.clock.changed(w.piece)
}
