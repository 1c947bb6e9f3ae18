package s3

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardtool/shardtool/objstore/internal/credentials"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// early is how long before their end other credentials are asked for.
const early = 5 * time.Minute

// secrets is a credentials provider that keeps the credentials it returned out of error texts, that
// is patient with the provider, and that reads them again where they have expired: the provider
// does not notice that a token in a file was replaced.
type secrets struct {
	load  func(context.Context) (aws.CredentialsProvider, error)
	shown *ranged.Secrets
	kept  credentials.Kept[aws.Credentials]

	turn     sync.Mutex // held while credentials are read again
	lastTurn time.Time  // when that found the same ones

	mu       sync.Mutex
	provider aws.CredentialsProvider
	renewed  int       // how often the provider was replaced
	last     time.Time // when it was replaced
}

func newSecrets(shown *ranged.Secrets, provider aws.CredentialsProvider,
	load func(context.Context) (aws.CredentialsProvider, error)) *secrets {
	s := &secrets{load: load, shown: shown, provider: provider}
	s.kept = credentials.Kept[aws.Credentials]{Ask: s.ask, Early: early}
	return s
}

// Retrieve implements aws.CredentialsProvider.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) { return s.kept.Get(ctx) }

// ask asks the provider, which has been set up to take credentials for expired when they are early.
func (s *secrets) ask(ctx context.Context, _ bool) (value aws.Credentials, end time.Time, err error) {
	provider, _ := s.current()
	if value, err = provider.Retrieve(ctx); err != nil {
		return value, end, err
	}
	s.shown.Remember(value.SecretAccessKey, value.SessionToken, value.AccessKeyID)
	if value.CanExpire {
		end = value.Expires.Add(early)
	}
	return value, end, nil
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
// cause one such read. token is that of the refused request: while it was under way, others may have
// been asked for because the end was near. The error is that of a source that has none now, but may
// have some later.
func (s *secrets) renew(ctx context.Context, renewed int, token string, pause time.Duration) (other bool, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	_, now := s.current()
	if now != renewed || time.Since(s.lastTurn) < pause {
		return now != renewed, nil
	}
	s.kept.Settle(ctx) // what it brings may be others, and a source asked twice may end the first ones
	old, err := s.kept.Get(ctx)
	if err != nil || token != "" && old.SessionToken != token {
		return err == nil, err
	}
	provider, err := s.load(ctx)
	if err != nil || provider == nil {
		return false, err
	}
	value, err := provider.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	s.lastTurn = time.Now()
	if value.SessionToken == old.SessionToken && value.AccessKeyID == old.AccessKeyID {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.provider, s.renewed, s.last, s.lastTurn = provider, s.renewed+1, time.Now(), time.Time{}
	s.kept.Drop()
	return true, nil
}

// young reports whether the credentials were read again not long ago, perhaps from a file that was
// half written.
func (s *secrets) young() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last) < time.Minute
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
		a, refused := s.answerOf(err)
		pause, half := 10*time.Second, refused && a.unknown() && s.secrets.young()
		if half {
			pause = time.Second
		}
		if !half && !(refused && a.expired()) {
			return out, metadata, err
		}
		other, lost := s.secrets.renew(ctx, renewed, request.Header.Get("X-Amz-Security-Token"), pause)
		switch {
		case lost != nil || half && !other:
			return out, metadata, &ranged.Transient{Err: s.explain("get", err), Answered: true}
		case !other || unsigned.RewindStream() != nil:
			return out, metadata, err
		}
		s.opts.Logger.Info("the session token has expired; the one that replaced it is used", "store", s.Address)
		in.Request = unsigned
		return next.HandleFinalize(ctx, in)
	}
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("RenewExpired", again), "Retry", middleware.After)
}
