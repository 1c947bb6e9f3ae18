package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// contest has several writers put one object under a condition that one of them can meet.
type contest struct {
	store            *store
	key              string
	condition        string // its header, for errors
	where            string // of which requests, for errors
	noneMatch, match *string
	writers          int // at once
	// commit publishes the object of one writer. start is called with the context of the request
	// that publishes and returns the one to use.
	commit func(c *contest, ctx context.Context, body string, start func(context.Context) context.Context) error
}

// judge returns what is wrong with the server, if anything is, or an error if the answers do not
// show it.
func (c *contest) judge(ctx context.Context) (verdict, err error) {
	answers := c.race(ctx)
	// Writers who come later must be refused as well. If nobody has won, as with a server that
	// refuses all who collide, the first of them may win.
	for later := slices.Contains(answers, nil); ; later = true {
		answer := c.commit(c, ctx, c.body(len(answers)), func(ctx context.Context) context.Context { return ctx })
		answers = append(answers, answer)
		if later {
			break
		}
	}
	won := 0
	for _, answer := range answers {
		switch {
		case answer == nil:
			won++
		case errors.Is(answer, errNotModified):
			return fmt.Errorf("%w: it answers %s that does not hold with 304, as S3 does not, and two writers at once may both "+
				"succeed; nothing was published; use a server that answers 412, or pack to a local directory and copy",
				ErrUnconditional, c.condition+c.where), nil
		case errors.Is(answer, parts.ErrPrecondition) || errors.Is(answer, errConflict) ||
			errors.Is(answer, errUploadGone) || isMissing(answer):
		default:
			err = answer
		}
	}
	what := "ignores " + c.condition + c.where
	switch last := answers[len(answers)-1]; {
	case won <= 1:
		return nil, err
	case last != nil:
		what = fmt.Sprintf("lets %d of %d writers at once win under %s%s", won, c.writers, c.condition, c.where)
	}
	return fmt.Errorf("%w: it %s, so writers could replace each other's data unseen; nothing was published; "+
		"use a server that honours it, or pack to a local directory and copy; "+
		"if nothing else writes below this address meanwhile, add single_writer=true to it", ErrUnconditional, what), nil
}

// body differs for every commit to the key: where ETags are digests, equal bodies would let a
// second writer meet If-Match.
func (c *contest) body(writer int) string { return fmt.Sprintf("probe %d of %s", writer, c.condition) }

// race returns the answers to writers whose requests are sent when all of them have connections, so
// that the server has them at once.
func (c *contest) race(ctx context.Context) []error {
	answers := make([]error, c.writers)
	all := make(chan struct{})
	begin := sync.OnceFunc(func() { close(all) })
	defer time.AfterFunc(time.Second, begin).Stop() // a connection may not come at all
	var missing atomic.Int64
	missing.Store(int64(c.writers))
	var group sync.WaitGroup
	for i := range answers {
		arrive := sync.OnceFunc(func() {
			if missing.Add(-1) == 0 {
				begin()
			}
		})
		start := func(ctx context.Context) context.Context {
			return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
				arrive()
				<-all
			}})
		}
		group.Go(func() {
			defer arrive()
			answers[i] = c.commit(c, ctx, c.body(i), start)
		})
	}
	group.Wait()
	return answers
}

// errNotModified reports a commit that was answered like a read. S3Mock does so at the completion
// of a multipart upload whose condition does not hold.
var errNotModified = errors.New("not modified")

// send sends a request of a writer.
func (c *contest) send(ctx context.Context, body io.Seeker, request func(ctx context.Context) error) error {
	err := c.store.send(ctx, body, request)
	if a, ok := errors.AsType[ranged.Answer](err); ok && a.Status == http.StatusNotModified {
		return errNotModified
	}
	return err
}

func (c *contest) put(ctx context.Context, body string, start func(context.Context) context.Context) error {
	in := &s3.PutObjectInput{Bucket: &c.store.Bucket.Bucket, Key: &c.key, IfNoneMatch: c.noneMatch, IfMatch: c.match}
	reader := strings.NewReader(body)
	in.Body = reader
	return c.send(ctx, reader, func(ctx context.Context) error {
		_, err := c.store.client.PutObject(start(ctx), in)
		return err
	})
}

// complete publishes by a multipart upload of one part, and removes that upload if it is refused.
func (c *contest) complete(ctx context.Context, body string, start func(context.Context) context.Context) error {
	s := c.store
	begun, err := s.createUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.Bucket.Bucket, Key: &c.key})
	if err != nil {
		return err
	}
	in := &s3.UploadPartInput{
		Bucket: &s.Bucket.Bucket, Key: &c.key, UploadId: begun.UploadId, PartNumber: aws.Int32(1),
		Body: bytes.NewReader([]byte(body)),
	}
	part, err := s.uploadPart(ctx, in)
	if err == nil {
		err = c.send(ctx, nil, func(ctx context.Context) error {
			_, err := s.client.CompleteMultipartUpload(start(ctx), &s3.CompleteMultipartUploadInput{
				Bucket: &s.Bucket.Bucket, Key: &c.key, UploadId: begun.UploadId, IfNoneMatch: c.noneMatch,
				IfMatch:         c.match,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{completed(in, part)}},
			})
			return err
		})
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if dropErr := s.dropParts(ctx, c.key, *begun.UploadId); dropErr != nil {
		s.opts.Logger.Debug("the probe's upload is left to the bucket's lifecycle rule", "store", s.Address, "key",
			c.key, "error", dropErr)
	}
	return err
}
