package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Head implements ranged.Backend.
func (s *store) Head(ctx context.Context, key string) (ranged.Meta, error) {
	head, err := s.head(ctx, "get", key)
	return head.meta, err
}

// Get implements ranged.Backend.
func (s *store) Get(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	in := &s3.GetObjectInput{
		Bucket: &s.Bucket.Bucket,
		Key:    &key,
		Range:  aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1)),
	}
	if etag != "" {
		in.IfMatch = aws.String(quoteTag(etag))
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, ranged.Meta{}, s.explain("get", err)
	}
	size, err := ranged.CheckBody(off, n, aws.ToString(out.ContentRange), lengthOf(out.ContentLength),
		aws.ToString(out.ContentType))
	if err != nil {
		out.Body.Close()
		return nil, ranged.Meta{}, err
	}
	meta := ranged.Meta{Size: size, ETag: plainTag(out.ETag), ModTime: aws.ToTime(out.LastModified)}
	meta.Sum = s.tagSum(meta.ETag, out.ResultMetadata)
	return out.Body, meta, nil
}

func lengthOf(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

// described is the answer to a HEAD request.
type described struct {
	meta     ranged.Meta
	metadata map[string]string
}

// head sends one HEAD request. Its answer has no body that explains an error, so a refusal that may
// have several reasons is followed by a GET of one byte, whose answer has one, or describes the
// object where the server refuses HEAD alone.
func (s *store) head(ctx context.Context, op, key string) (described, error) {
	_, renewed := s.secrets.current()
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.Bucket.Bucket, Key: &key})
	if err != nil {
		d, err := s.headRefused(ctx, op, key, err)
		if _, now := s.secrets.current(); err != nil && now != renewed {
			err = &ranged.Transient{Err: err, Answered: true} // the token had expired, and the GET has renewed it
		}
		return d, err
	}
	if plainTag(out.ETag) == "" {
		if ranged.IsPage(aws.ToString(out.ContentType)) {
			return described{}, ranged.ErrPage
		}
		return described{}, errors.New("the server gives the object no ETag, so that its versions cannot be told apart; " +
			"use one that does")
	}
	s.found.Store(true)
	size := aws.ToInt64(out.ContentLength)
	if out.ContentLength == nil || size < 0 {
		return described{}, errors.New("the server does not report the size of the object; use one that sends Content-Length")
	}
	tag := plainTag(out.ETag)
	return described{
		meta: ranged.Meta{Size: size, ETag: tag, ModTime: aws.ToTime(out.LastModified),
			Sum: s.tagSum(tag, out.ResultMetadata)},
		metadata: out.Metadata,
	}, nil
}

// headRefused describes an object after a HEAD that failed because of cause.
func (s *store) headRefused(ctx context.Context, op, key string, cause error) (described, error) {
	a, ok := s.answerOf(cause)
	vague := ok && (a.Status == 301 || a.Status == 307 || a.Status == 400 || a.Status == 403 || a.Status == 405 ||
		a.Status == 501 || a.Status == 404 && !s.found.Load())
	if !vague {
		return described{}, s.explain(op, cause)
	}
	in := &s3.GetObjectInput{Bucket: &s.Bucket.Bucket, Key: &key, Range: aws.String("bytes=0-0")}
	out, err := s.client.GetObject(ctx, in)
	if b, ok := s.answerOf(err); ok && b.Status == http.StatusRequestedRangeNotSatisfiable { // an empty object
		in.Range = nil
		out, err = s.client.GetObject(ctx, in)
	}
	if err != nil {
		if b, ok := s.answerOf(err); ok && b.Code == "NoSuchKey" {
			s.found.Store(true)
		}
		return described{}, s.explain(op, err)
	}
	out.Body.Close()
	size, err := ranged.CheckBody(0, 1, aws.ToString(out.ContentRange), lengthOf(out.ContentLength),
		aws.ToString(out.ContentType))
	tag := plainTag(out.ETag)
	if err != nil || tag == "" {
		return described{}, s.explain(op, cause)
	}
	s.found.Store(true)
	return described{
		meta: ranged.Meta{Size: size, ETag: tag, ModTime: aws.ToTime(out.LastModified),
			Sum: s.tagSum(tag, out.ResultMetadata)},
		metadata: out.Metadata,
	}, nil
}

func plainTag(tag *string) string { return ranged.PlainTag(aws.ToString(tag)) }

// quoteTag adds the quotes that HTTP requires.
func quoteTag(tag string) string {
	if strings.Contains(tag, `"`) { // W/"weak"
		return tag
	}
	return `"` + tag + `"`
}
