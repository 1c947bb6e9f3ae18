package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithymiddleware "github.com/aws/smithy-go/middleware"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// conflicts is the number of retries of a commit that met another commit in progress (409).
const conflicts = 6

// errNoTag reports a successful answer to a commit that contains no ETag.
var errNoTag = errors.New("the server answers the put without an ETag, and the object is not there: it may not be an S3 server; " +
	"check the endpoint")

// publish sends the request that makes the object visible. It retries after a conflict, and checks
// the result if the answer leaves it open. A request in flight cannot be taken back: if ctx ends,
// publish waits a little for the answer, so that an error nearly always means that nothing was put.
func (u *upload) publish(ctx context.Context) (objstore.Info, error) {
	lingering, stop := linger(ctx, min(grace, u.store.opts.WriteTimeout))
	defer stop()
	for attempt := 0; ; attempt++ {
		info, err := u.commit(lingering)
		switch {
		case err == nil && info.ETag != "":
			return info, nil
		case err == nil:
			return u.resolve(ctx, errNoTag)
		}
		if ctx.Err() != nil {
			return objstore.Info{}, ctx.Err()
		}
		if !errors.Is(err, errConflict) || attempt == conflicts {
			return u.resolve(ctx, err)
		}
		if err := ranged.Sleep(ctx, rand.N(50*time.Millisecond<<attempt)); err != nil {
			return objstore.Info{}, err
		}
	}
}

// commit sends PutObject or CompleteMultipartUpload.
func (u *upload) commit(ctx context.Context) (info objstore.Info, err error) {
	var noneMatch, match *string
	if u.cond.IfNoneMatch {
		noneMatch = aws.String("*")
	}
	if u.cond.IfMatch != "" {
		match = aws.String(quoteTag(u.cond.IfMatch))
	}
	s := u.store
	if u.id == "" {
		put := &s3.PutObjectInput{
			Bucket: &s.bucket, Key: &u.key, Metadata: map[string]string{tagKey: u.tag}, ChecksumAlgorithm: u.algorithm,
			IfNoneMatch: noneMatch, IfMatch: match,
		}
		body := bytes.NewReader(u.whole)
		put.Body = body
		err = s.send(ctx, body, func(ctx context.Context) error {
			out, err := s.client.PutObject(ctx, put)
			if err == nil {
				info = u.info(out.ETag, out.ResultMetadata)
			}
			return err
		})
		return info, err
	}
	slices.SortFunc(u.done, func(a, b types.CompletedPart) int { return int(*a.PartNumber - *b.PartNumber) })
	complete := &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: &u.key, UploadId: &u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.done},
		IfNoneMatch: noneMatch, IfMatch: match,
	}
	err = s.send(ctx, nil, func(ctx context.Context) error {
		out, err := s.client.CompleteMultipartUpload(ctx, complete)
		if err == nil {
			info = u.info(out.ETag, out.ResultMetadata)
		}
		return err
	})
	return info, err
}

func (u *upload) info(tag *string, answer smithymiddleware.Metadata) objstore.Info {
	at, ok := middleware.GetServerTime(answer)
	if !ok {
		at = time.Now()
	}
	return objstore.Info{Name: u.name, Size: u.size, ETag: plainTag(tag), ModTime: at}
}

// resolve determines the result of a commit that failed with cause. The answer may have been lost
// after the object was put; the retry then fails because the condition no longer holds or the
// upload is gone. The tag in the object's metadata shows whether the object is this upload's.
func (u *upload) resolve(ctx context.Context, cause error) (objstore.Info, error) {
	if !u.ambiguous(cause) {
		return objstore.Info{}, cause
	}
	var head described
	err := u.store.reader.Do(ctx, func(ctx context.Context) (err error) {
		head, err = u.store.head(ctx, "put", u.key)
		return err
	})
	if err == nil && head.metadata[tagKey] == u.tag && head.meta.Size == u.size {
		return objstore.Info{Name: u.name, Size: u.size, ETag: head.meta.ETag, ModTime: head.meta.ModTime}, nil
	}
	there, missing := err == nil, isMissing(err)
	noneMatch, match := u.cond.IfNoneMatch, u.cond.IfMatch
	switch {
	case ctx.Err() != nil:
		return objstore.Info{}, ctx.Err()
	case noneMatch && (there || errors.Is(cause, errPrecondition)):
		return objstore.Info{}, objstore.ErrExists
	case match != "" && (missing || there && head.meta.ETag != match || errors.Is(cause, errPrecondition)):
		return objstore.Info{}, objstore.ErrChanged
	case there || missing:
		return objstore.Info{}, cause
	}
	return objstore.Info{}, fmt.Errorf("%w (and whether it was put cannot be seen: %v)", cause, err)
}

// ambiguous reports whether the object may exist although the commit failed, or whether the answer
// has several possible causes. Neither is true of a plain refusal.
func (u *upload) ambiguous(cause error) bool {
	return ranged.GivenUp(cause) || isMissing(cause) || errors.Is(cause, errPrecondition) || errors.Is(cause, errConflict) ||
		errors.Is(cause, errUploadGone) || errors.Is(cause, errNoTag)
}

// grace is how long a commit waits for its answer after the context has ended.
const grace = 5 * time.Second

// linger returns a context that ends some time after ctx.
func linger(ctx context.Context, after time.Duration) (context.Context, func()) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	started := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer = time.AfterFunc(after, cancel)
		close(started)
	})
	return lingering, func() {
		if !stop() {
			<-started
			timer.Stop()
		}
		cancel()
	}
}
