// Package account records why each batch of a stream was late.
//
// While the consumer waits, every moment has exactly one cause, so the causes add up to the wait.
// The parts of a stream report what they do, at the points where it changes:
//
//	planner    Clock.Plan                       what keeps the planner from asking for pieces
//	workers    Worker.Begin, At, Trace          where each piece is on its way
//	assembler  Clock.Await, Map, Hand           which piece the next batch lacks
//	consumer   Clock.Begin, End                 when a wait begins and ends
//
// From these reports the Clock derives the cause, and only while the consumer waits. A stream calls
// it a few times for a piece and twice for a batch, never for a sample.
package account

import "time"

// Cause is what the consumer waits for at a moment.
type Cause int

// The causes. stats.Stalls documents what each one means to a user.
const (
	Request Cause = iota
	Throttled
	Cache
	Window
	Decode
	Memory
	Order
	Map
	Causes // how many there are
)

// String returns the name of the cause in metrics and JSON.
func (c Cause) String() string {
	return [Causes]string{"request", "throttled", "cache", "window", "decode", "memory", "order", "map"}[c]
}

// Totals is the time waited, by cause.
type Totals [Causes]time.Duration

// Sum returns the whole wait.
func (t Totals) Sum() (d time.Duration) {
	for _, of := range t {
		d += of
	}
	return d
}

// Stage is where a piece is on its way from the store to a batch.
type Stage int32

// The stages, in the order in which a piece passes through them.
const (
	Unasked  Stage = iota // it has no memory yet
	Queued                // it waits for a worker
	Reading               // it is read from the store
	Room                  // its stored bytes wait for memory
	Decoding              // it is checked and decoded, or waits its turn for that
	Landed                // a batch can use it
	stages
)

// Planning is what the planner does at a moment.
type Planning int32

// What the planner does.
const (
	PlanOrder  Planning = iota // it computes the order
	PlanStore                  // it reads the tables of a shard, or opens a shard
	PlanMemory                 // it waits for the memory of a piece
	PlanQueue                  // it waits for a place in the queue of the workers
)
