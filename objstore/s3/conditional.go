package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/objstore"
)

// probePrefix begins the names of the objects that CheckConditional puts and deletes.
const probePrefix = ".shardtool-probe-"

// ErrUnconditional: the server ignores a condition of a put and would overwrite.
var ErrUnconditional = errors.New("the server overwrites objects in spite of the condition")

// probe is what is known of the server's conditional puts.
type probe struct {
	turn      chan struct{} // held while one goroutine asks
	once      sync.Once
	known     bool
	noneMatch error
	match     error
}

// CheckConditional finds out whether the server honours If-None-Match and If-Match on puts: it puts a small object of a
// random name, tries to overwrite it under both conditions, and deletes it. An error wraps [ErrUnconditional] when it
// does not. The answer is kept; where the question itself failed, the next call asks again.
//
// On endpoints that are not of AWS it is called before the first conditional commit, which then publishes nothing.
func (s *Store) CheckConditional(ctx context.Context) error {
	if err := s.ask(ctx); err != nil {
		return s.fail("put", "", err)
	}
	return s.fail("put", "", errors.Join(s.probe.noneMatch, s.probe.match))
}

// checkCondition is for a commit under cond.
func (s *Store) checkCondition(ctx context.Context, cond objstore.Condition) error {
	if !s.custom {
		return nil
	}
	if err := s.ask(ctx); err != nil {
		return err
	}
	if cond.IfNoneMatch && s.probe.noneMatch != nil {
		return s.probe.noneMatch
	}
	if cond.IfMatch != "" && s.probe.match != nil {
		return s.probe.match
	}
	return nil
}

// ask probes once, whoever comes first. On nil the probe's fields are set and stay.
func (s *Store) ask(ctx context.Context) error {
	p := &s.probe
	p.once.Do(func() { p.turn = make(chan struct{}, 1) })
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	if p.known {
		return nil
	}
	name := probePrefix + randomTag()
	noneMatch, match, err := s.try(ctx, s.prefix+name)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("a probe whether the server honours conditional puts: %w", err)
	}
	p.noneMatch, p.match, p.known = noneMatch, match, true
	return nil
}

// try puts the object under key, overwrites it under conditions that do not hold, and deletes it.
func (s *Store) try(ctx context.Context, key string) (noneMatch, match, err error) {
	// The first answer may be lost, and the SDK's second request be told that the object exists, which is as good.
	if err := s.putProbe(ctx, key, aws.String("*"), nil); err != nil && !errors.Is(err, errPrecondition) {
		return nil, nil, final(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_, deleteErr := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
		if deleteErr = s.explain("delete", deleteErr); deleteErr != nil && !isMissing(deleteErr) {
			s.opts.Logger.Warn("the probe of conditional puts stays in the bucket; delete it",
				"store", s.address, "key", key, "error", deleteErr)
		}
	}()
	if noneMatch, err = judge("If-None-Match", s.putProbe(ctx, key, aws.String("*"), nil)); err != nil {
		return nil, nil, err
	}
	const other = `"00000000000000000000000000000000"`
	if match, err = judge("If-Match", s.putProbe(ctx, key, nil, aws.String(other))); err != nil {
		return nil, nil, err
	}
	return noneMatch, match, nil
}

// judge reads the answer to a put that has to be refused.
func judge(header string, answer error) (verdict, err error) {
	switch {
	case answer == nil:
		return fmt.Errorf("%w: it ignores %s, so writers could replace each other's data unseen; nothing was published; "+
			"use a server that honours it, or pack to a local directory and copy", ErrUnconditional, header), nil
	case errors.Is(answer, errPrecondition) || isMissing(answer):
		return nil, nil
	}
	return nil, final(answer)
}

func (s *Store) putProbe(ctx context.Context, key string, noneMatch, match *string) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      &s.bucket,
		Key:         &key,
		Body:        strings.NewReader("probe"),
		IfNoneMatch: noneMatch,
		IfMatch:     match,
	})
	return s.explain("put", err)
}
