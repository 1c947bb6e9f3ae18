package objstore

import "context"

// Phase is an activity of a read. A read that is in no phase is waiting for its source.
type Phase int

const (
	// PhaseRequest is a request in flight, from its first byte sent to its last byte received.
	PhaseRequest Phase = iota
	// PhaseTurn is the wait in the store's queue while the maximum number of requests is in flight.
	PhaseTurn
	// PhasePause is the wait before a retry, after the store was overloaded, failed or broke off an
	// answer.
	PhasePause
	// PhaseThrottled is a PhasePause after an answer that asked for less load. Both phases are
	// traced.
	PhaseThrottled
	// PhaseCache is an access to the cache on local disk.
	PhaseCache
	// Phases is the number of phases.
	Phases
)

// Tracer observes reads. Goroutines of a read call it, several at once if the read is split into
// parts. It must return quickly.
type Tracer interface {
	// Trace adds delta to the number of parts of a read in phase p. At the end of the read every
	// number is what it was at the start.
	Trace(p Phase, delta int32)
}

type tracerKey struct{}

// WithTracer returns a context whose reads call t.
func WithTracer(ctx context.Context, t Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// Trace calls the tracer of ctx, if there is one. Stores call it.
func Trace(ctx context.Context, p Phase, delta int32) {
	if t, ok := ctx.Value(tracerKey{}).(Tracer); ok {
		t.Trace(p, delta)
	}
}
