package objstore

import "context"

// Phase is something that a read may be doing at a moment. A read that says nothing is at its source.
type Phase int

const (
	// PhaseRequest: a request is under way, from its sending to its last byte.
	PhaseRequest Phase = iota
	// PhaseTurn: the read waits until the store sends its request, because as many are in flight as may be.
	PhaseTurn
	// PhasePause: the read waits before it asks again, because the store asked for less load, failed or broke off.
	PhasePause
	// PhaseThrottled: that pause, where an answer asked for less load.
	PhaseThrottled
	// PhaseCache: the read uses a cache on local disk.
	PhaseCache
	// Phases is how many there are.
	Phases
)

// Tracer is told what reads do. It is called from the goroutines of a read, several at once where one is sent in parts, and must
// return soon.
type Tracer interface {
	// Trace says that one more part of a read is in a phase (+1), or one less (-1). At the end of a read all are back at what they
	// were.
	Trace(p Phase, delta int32)
}

type tracerKey struct{}

// WithTracer returns a context whose reads tell t what they do.
func WithTracer(ctx context.Context, t Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// Trace is for stores: it tells the context's tracer, if there is one.
func Trace(ctx context.Context, p Phase, delta int32) {
	if t, ok := ctx.Value(tracerKey{}).(Tracer); ok {
		t.Trace(p, delta)
	}
}
