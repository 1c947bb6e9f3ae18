package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardtool/shardtool/objstore"
)

// ErrUnconditional reports a server that ignores the condition of a put and would overwrite the
// object.
var ErrUnconditional = errors.New("the server overwrites objects in spite of the condition")

// probe is the result of testing one kind of conditional commit: a put, or the completion of a
// multipart upload.
type probe struct {
	turn      chan struct{} // held by the goroutine that tests
	once      sync.Once
	known     bool
	noneMatch error
	match     error
}

// checkCondition returns an error if the server is known to ignore the condition of a commit.
func (s *store) checkCondition(ctx context.Context, cond objstore.Condition, inParts bool) error {
	if !s.at.custom || s.opts.SingleWriter || cond == (objstore.Condition{}) {
		return nil
	}
	if s.at.google {
		return s.useGoogle()
	}
	p, err := s.ask(ctx, inParts)
	if err != nil {
		return err
	}
	if cond.IfNoneMatch && p.noneMatch != nil {
		return p.noneMatch
	}
	if cond.IfMatch != "" && p.match != nil {
		return p.match
	}
	return nil
}

// checkWrites implements objstore.Traits.CheckWrites.
func (s *store) checkWrites(ctx context.Context, inParts bool) error {
	for _, cond := range []objstore.Condition{{IfNoneMatch: true}, {IfMatch: "any"}} {
		err := s.checkCondition(ctx, cond, false)
		if err == nil && inParts {
			err = s.checkCondition(ctx, cond, true)
		}
		if err != nil {
			return s.Fail("put", "", err)
		}
	}
	return nil
}

// useGoogle refuses Google Cloud Storage without a test: its S3 interface ignores If-None-Match.
func (s *store) useGoogle() error {
	return fmt.Errorf("%w: the S3 interface of Google Cloud Storage ignores If-None-Match; nothing was published; use %s",
		ErrUnconditional, strings.Replace(s.Address, "s3://", "gs://", 1))
}

// ask runs the test once, in the first caller. After a nil error the fields of the probe are set
// and never change.
func (s *store) ask(ctx context.Context, inParts bool) (*probe, error) {
	p := &s.probe
	if inParts {
		p = &s.partsProbe
	}
	p.once.Do(func() { p.turn = make(chan struct{}, 1) })
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.turn }()
	if p.known {
		return p, nil
	}
	name := objstore.ProbeName()
	noneMatch, match, err := s.try(ctx, s.Prefix+name, inParts)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("test whether the server honours conditional puts: %w", s.Fail("put", name, err))
	}
	p.noneMatch, p.match, p.known = noneMatch, match, true
	return p, nil
}

// try races writers that put an object under key where there is none, and then writers that replace
// it, and deletes it. A server that fails the first race is not trusted with the other condition.
func (s *store) try(ctx context.Context, key string, inParts bool) (noneMatch, match, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		if err := s.Erase(ctx, key); err != nil {
			s.opts.Logger.Warn("the probe of conditional puts stays in the bucket; delete it",
				"store", s.Address, "key", key, "error", err)
		}
	}()
	c := contest{store: s, key: key, noneMatch: aws.String("*"), condition: "If-None-Match", writers: 8,
		commit: (*contest).put}
	if inParts {
		c.writers, c.where, c.commit = 4, " at the completion of an upload in parts", (*contest).complete
	}
	if noneMatch, err = c.judge(ctx); err != nil || noneMatch != nil {
		return noneMatch, noneMatch, err
	}
	var there described
	err = s.Reader.Do(ctx, func(ctx context.Context) (err error) {
		there, err = s.head(ctx, "put", key)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	c.noneMatch, c.match, c.condition = nil, aws.String(quoteTag(there.meta.ETag)), "If-Match"
	match, err = c.judge(ctx)
	return noneMatch, match, err
}
