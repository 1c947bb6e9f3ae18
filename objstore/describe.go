package objstore

import (
	"context"
	"time"
)

// Description says how a store reaches its server. It contains no secret.
type Description struct {
	// Identity is who sends the requests, such as a service account or the end of an access key. It
	// is "anonymous" if the requests have no credentials.
	Identity string
	// From is where the credentials were found, or where they were looked for.
	From string
	// Endpoint is the server's address.
	Endpoint string
	// Region is the region of the bucket as it was configured, or empty.
	Region string
}

// Describe describes how a store reaches its server. It may send requests to find credentials, and
// none that read or list objects. The error says what to set if there are no credentials or if they
// have expired; the description has what was found. A store declares the description with a method
// Describe(context.Context) (Description, error); without it, the description is empty.
func Describe(ctx context.Context, s Store) (Description, error) {
	if s, ok := s.(interface {
		Describe(ctx context.Context) (Description, error)
	}); ok {
		return s.Describe(ctx)
	}
	return Description{}, nil
}

// Answer is the header of a server's answer to one request.
type Answer struct {
	// Sent is when the request was sent, and Came when the header of its answer was received.
	Sent, Came time.Time
	// Date is the server's time in whole seconds, or zero if the answer does not have it.
	Date time.Time
}

type answersKey struct{}

// WithAnswers returns a context whose requests call f for each answer. Many goroutines may call f.
func WithAnswers(ctx context.Context, f func(Answer)) context.Context {
	return context.WithValue(ctx, answersKey{}, f)
}

// Answered calls the function of WithAnswers, if ctx has one. Stores call it.
func Answered(ctx context.Context, a Answer) {
	if f, ok := ctx.Value(answersKey{}).(func(Answer)); ok {
		f(a)
	}
}
