package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
)

// probePrefix is the prefix of the objects that CheckConditional puts and deletes.
const probePrefix = ".shardtool-probe-"

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

// CheckConditional tests whether the server honours If-None-Match and If-Match, both for a put and
// for the completion of a multipart upload: some servers check only the former. It puts a small
// object with a random name, tries to overwrite it in all four ways, and deletes it. The error
// wraps [ErrUnconditional] if one succeeded. The results are kept. If the test itself fails, the
// next call repeats it.
//
// On servers other than AWS the first conditional commit of either kind runs this test, and
// publishes nothing if it fails.
func (s *Store) CheckConditional(ctx context.Context) error {
	var found []error
	for _, inParts := range []bool{false, true} {
		p, err := s.ask(ctx, inParts)
		if err != nil {
			return s.fail("put", "", err)
		}
		found = append(found, p.noneMatch, p.match)
	}
	return s.fail("put", "", errors.Join(found...))
}

// checkCondition returns an error if the server is known to ignore the condition of a commit.
func (s *Store) checkCondition(ctx context.Context, cond objstore.Condition, inParts bool) error {
	if !s.custom || cond == (objstore.Condition{}) {
		return nil
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

// ask runs the test once, in the first caller. After a nil error the fields of the probe are set
// and never change.
func (s *Store) ask(ctx context.Context, inParts bool) (*probe, error) {
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
	name := probePrefix + randomTag()
	noneMatch, match, err := s.try(ctx, s.prefix+name, inParts)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("test whether the server honours conditional puts: %w", err)
	}
	p.noneMatch, p.match, p.known = noneMatch, match, true
	return p, nil
}

// try puts the object under key, overwrites it under conditions that do not hold, and deletes it.
func (s *Store) try(ctx context.Context, key string, inParts bool) (noneMatch, match, err error) {
	// If the first answer is lost, the SDK's retry fails because the object exists, which is just
	// as good.
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
	overwrite, where := s.putProbe, ""
	if inParts {
		overwrite, where = s.completeProbe, " at the completion of an upload in parts"
	}
	answer := overwrite(ctx, key, aws.String("*"), nil)
	if answer == nil { // if the first put's answer was lost, its object may not have been there; this one is
		answer = overwrite(ctx, key, aws.String("*"), nil)
	}
	if noneMatch, err = judge("If-None-Match"+where, answer); err != nil {
		return nil, nil, err
	}
	const other = `"00000000000000000000000000000000"`
	if match, err = judge("If-Match"+where, overwrite(ctx, key, nil, aws.String(other))); err != nil {
		return nil, nil, err
	}
	return noneMatch, match, nil
}

// judge interprets the answer to a commit that the server must refuse.
func judge(what string, answer error) (verdict, err error) {
	switch {
	case answer == nil:
		return fmt.Errorf("%w: it ignores %s, so writers could replace each other's data unseen; nothing was published; "+
			"use a server that honours it, or pack to a local directory and copy", ErrUnconditional, what), nil
	case errors.Is(answer, errNotModified):
		return fmt.Errorf("%w: it answers %s that does not hold with 304, as S3 does not, and two writers at once may both "+
			"succeed; nothing was published; use a server that answers 412, or pack to a local directory and copy", ErrUnconditional, what), nil
	case errors.Is(answer, errPrecondition) || isMissing(answer):
		return nil, nil
	}
	return nil, final(answer)
}

// errNotModified reports a commit that was answered like a read. S3Mock does so at the completion
// of a multipart upload whose condition does not hold.
var errNotModified = errors.New("not modified")

// explainProbe is explain for the answer to a commit of the test.
func (s *Store) explainProbe(err error) error {
	if a, ok := s.answerOf(err); ok && a.status == http.StatusNotModified {
		return errNotModified
	}
	return s.explain("put", err)
}

func (s *Store) putProbe(ctx context.Context, key string, noneMatch, match *string) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      &s.bucket,
		Key:         &key,
		Body:        strings.NewReader("probe"),
		IfNoneMatch: noneMatch,
		IfMatch:     match,
	})
	return s.explainProbe(err)
}

// completeProbe overwrites the object by a multipart upload of one part, and removes that upload if
// it is refused.
func (s *Store) completeProbe(ctx context.Context, key string, noneMatch, match *string) error {
	begun, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return s.explain("put", err)
	}
	if aws.ToString(begun.UploadId) == "" {
		return errNoUploadID
	}
	part, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.bucket, Key: &key, UploadId: begun.UploadId, PartNumber: aws.Int32(1), Body: strings.NewReader("probe"),
	})
	if err == nil {
		_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.bucket, Key: &key, UploadId: begun.UploadId, IfNoneMatch: noneMatch, IfMatch: match,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{firstPart(part)}},
		})
		if err == nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if _, dropErr := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: &key, UploadId: begun.UploadId}); dropErr != nil {
		s.opts.Logger.Debug("the probe's upload is left to the bucket's lifecycle rule", "store", s.address, "key", key, "error", s.explain("put", dropErr))
	}
	return s.explainProbe(err)
}
