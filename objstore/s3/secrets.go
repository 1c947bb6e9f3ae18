package s3

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// secrets is a credentials provider that keeps the credentials it returned out of error texts, and
// that reads them again where they have expired: the provider does not notice that a token in a
// file was replaced.
type secrets struct {
	load  func(context.Context) (aws.CredentialsProvider, error)
	shown *ranged.Secrets

	turn     sync.Mutex // held while credentials are read again
	lastTurn time.Time  // when that found the same ones

	mu       sync.Mutex
	provider aws.CredentialsProvider
	renewed  int // how often the provider was replaced
}

// Retrieve implements aws.CredentialsProvider.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) {
	provider, _ := s.current()
	value, err := provider.Retrieve(ctx)
	if err == nil {
		s.shown.Remember(value.SecretAccessKey, value.SessionToken, value.AccessKeyID)
	}
	return value, err
}

// current returns the provider. renewed is 0 also for an anonymous store, which has none.
func (s *secrets) current() (provider aws.CredentialsProvider, renewed int) {
	if s == nil {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.provider, s.renewed
}

// renew reads the credentials again, after the server refused those in use when renewed was read,
// and reports whether there are other ones. All requests that are refused at about the same time
// cause one such read.
func (s *secrets) renew(ctx context.Context, renewed int) bool {
	s.turn.Lock()
	defer s.turn.Unlock()
	provider, now := s.current()
	const pause = 10 * time.Second
	if now != renewed || time.Since(s.lastTurn) < pause {
		return now != renewed
	}
	old, err := provider.Retrieve(ctx)
	if err != nil {
		return false
	}
	s.lastTurn = time.Now()
	if provider, err = s.load(ctx); err != nil || provider == nil {
		return false
	}
	if value, err := provider.Retrieve(ctx); err != nil || value.SessionToken == old.SessionToken &&
		value.AccessKeyID == old.AccessKeyID {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.provider, s.renewed, s.lastTurn = provider, s.renewed+1, time.Time{}
	return true
}

// renewExpired has each request whose credentials have expired sent again with those that have
// replaced them, if any have.
func (s *store) renewExpired(stack *middleware.Stack) error {
	again := func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		request, ok := in.Request.(*smithyhttp.Request)
		if !ok || s.secrets == nil {
			return next.HandleFinalize(ctx, in)
		}
		unsigned := request.Clone()
		_, renewed := s.secrets.current()
		out, metadata, err := next.HandleFinalize(ctx, in)
		if a, ok := s.answerOf(err); !ok || !a.expired() || !s.secrets.renew(ctx, renewed) ||
			unsigned.RewindStream() != nil {
			return out, metadata, err
		}
		s.opts.Logger.Info("the session token has expired; the one that replaced it is used", "store", s.Address)
		in.Request = unsigned
		return next.HandleFinalize(ctx, in)
	}
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("RenewExpired", again), "Retry", middleware.After)
}
