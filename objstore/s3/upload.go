package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithymiddleware "github.com/aws/smithy-go/middleware"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

const (
	// maxParts is S3's limit on the parts of an upload. They are sent in segments of equal numbers.
	// The parts of a segment are growth times as large as the parts of the segment before: 2,000 x (8
	// + 32 + 128 + 512 + 2,048 MiB) = 5.2 TiB, more than S3's limit on an object.
	maxParts     = 10_000
	segmentParts = 2_000
	growth       = 4

	// abortTimeout bounds the removal of probes, whose own context may have ended.
	abortTimeout = 30 * time.Second
	// conflicts is the number of retries of a commit that met another commit in progress (409).
	conflicts = 6
)

var errNoUploadID = errors.New("the server begins a multipart upload and gives no id for it; use one that knows them")

// errNoTag reports a successful answer to a commit that contains no ETag.
const errNoTag = parts.Unsure("the server answers the put without an ETag, and the object is not there: it may not be an S3 server; " +
	"check the endpoint")

// upload implements parts.Target.
type upload struct {
	store *store
	key   string
	cond  objstore.Condition
	tag   string

	algorithm types.ChecksumAlgorithm
	once      sync.Once // begins the multipart upload, with the first part
	id        string    // "" if none was begun
	idErr     error
	declared  bool // the upload declared CRC-32C

	mu   sync.Mutex
	done []types.CompletedPart
}

// Create begins an upload. It sends nothing.
func (s *store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.Key(ctx, name)
	if err != nil {
		return nil, s.Fail("put", name, err)
	}
	u := &upload{store: s, key: key, cond: cond, tag: rand.Text()}
	if s.client.Options().RequestChecksumCalculation == aws.RequestChecksumCalculationWhenSupported {
		u.algorithm = types.ChecksumAlgorithmCrc32
	}
	return parts.NewUpload(ctx, s.Reader, name, u.tag, cond, parts.Options{
		Size: int(s.opts.UploadPartSize), Workers: s.opts.UploadConcurrency, Segment: s.segmentParts, Growth: growth,
		Most: maxParts,
	}, u), nil
}

// Send sends one part. The first one begins the multipart upload.
func (u *upload) Send(ctx context.Context, number int, data []byte) error {
	u.once.Do(func() {
		ctx, end := parts.Linger(ctx, u.store.opts.WriteTimeout) // Drop needs the id
		defer end()
		u.id, u.idErr = u.declare(ctx, &s3.CreateMultipartUploadInput{
			Bucket: &u.store.Bucket.Bucket, Key: &u.key, Metadata: map[string]string{parts.TagKey: u.tag},
			ChecksumAlgorithm: u.algorithm,
		})
	})
	if u.idErr != nil {
		return u.idErr
	}
	in := &s3.UploadPartInput{
		Bucket: &u.store.Bucket.Bucket, Key: &u.key, UploadId: &u.id, PartNumber: aws.Int32(int32(number)),
		Body: bytes.NewReader(data), ChecksumAlgorithm: u.algorithm,
	}
	send := u.store.uploadPart
	if u.declared {
		send = u.store.uploadChecked
	}
	out, err := send(ctx, in)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = append(u.done, completed(in, out))
	return nil
}

func (s *store) uploadPart(ctx context.Context, in *s3.UploadPartInput) (out *s3.UploadPartOutput, err error) {
	err = s.send(ctx, in.Body.(*bytes.Reader), func(ctx context.Context) (err error) {
		out, err = s.client.UploadPart(ctx, in)
		return err
	})
	return out, err
}

// completed describes a part that was uploaded.
func completed(in *s3.UploadPartInput, out *s3.UploadPartOutput) types.CompletedPart {
	return types.CompletedPart{
		PartNumber: in.PartNumber, ETag: out.ETag,
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME,
		ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}
}

// createUpload sends one request. An answer that broke off leaves an upload without parts.
func (s *store) createUpload(ctx context.Context,
	in *s3.CreateMultipartUploadInput) (out *s3.CreateMultipartUploadOutput, err error) {
	err = s.send(ctx, nil, func(ctx context.Context) (err error) {
		out, err = s.client.CreateMultipartUpload(ctx, in)
		return err
	})
	if err == nil && aws.ToString(out.UploadId) == "" {
		err = errNoUploadID
	}
	return out, err
}

// Publish sends PutObject or CompleteMultipartUpload. It retries after a conflict.
func (u *upload) Publish(ctx context.Context, _ int64, whole []byte) (objstore.Info, error) {
	err := u.store.checkCondition(ctx, u.cond, false)
	if err == nil && u.id != "" {
		err = u.store.checkCondition(ctx, u.cond, true)
	}
	if err != nil {
		return objstore.Info{}, err
	}
	if u.store.opts.SingleWriter {
		if err := u.compare(ctx); err != nil {
			return objstore.Info{}, err
		}
	}
	for attempt := 0; ; attempt++ {
		info, err := u.commit(ctx, whole)
		if err == nil && info.ETag == "" {
			err = errNoTag
		}
		if !errors.Is(err, errConflict) || attempt == conflicts {
			return info, err
		}
		if err := ranged.Sleep(ctx, mathrand.N(50*time.Millisecond<<attempt)); err != nil {
			return info, err
		}
	}
}

// compare compares the condition with the object that is there, for the only writer.
func (u *upload) compare(ctx context.Context) error {
	if u.cond == (objstore.Condition{}) {
		return nil
	}
	var there objstore.Info
	err := u.store.Reader.Do(ctx, func(ctx context.Context) (err error) {
		there, _, err = u.Describe(ctx)
		return err
	})
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case u.cond.IfNoneMatch && err == nil, u.cond.IfMatch != "" && (err != nil || there.ETag != u.cond.IfMatch):
		return parts.ErrPrecondition
	}
	return nil
}

func (u *upload) commit(ctx context.Context, whole []byte) (info objstore.Info, err error) {
	var noneMatch, match *string
	if u.cond.IfNoneMatch && !u.store.opts.SingleWriter {
		noneMatch = aws.String("*")
	}
	if u.cond.IfMatch != "" && !u.store.opts.SingleWriter {
		match = aws.String(quoteTag(u.cond.IfMatch))
	}
	s := u.store
	if u.id == "" {
		put := &s3.PutObjectInput{
			Bucket: &s.Bucket.Bucket, Key: &u.key, Metadata: map[string]string{parts.TagKey: u.tag},
			ChecksumAlgorithm: u.algorithm,
			IfNoneMatch:       noneMatch, IfMatch: match,
		}
		body := bytes.NewReader(whole)
		put.Body = body
		err = s.send(ctx, body, func(ctx context.Context) error {
			out, err := s.client.PutObject(ctx, put)
			if err == nil {
				info = committed(out.ETag, out.ResultMetadata)
			}
			return err
		})
		return info, err
	}
	slices.SortFunc(u.done, func(a, b types.CompletedPart) int { return int(*a.PartNumber - *b.PartNumber) })
	complete := &s3.CompleteMultipartUploadInput{
		Bucket: &s.Bucket.Bucket, Key: &u.key, UploadId: &u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.done},
		IfNoneMatch:     noneMatch, IfMatch: match,
	}
	err = s.send(ctx, nil, func(ctx context.Context) error {
		out, err := s.client.CompleteMultipartUpload(ctx, complete)
		if err == nil {
			info = committed(out.ETag, out.ResultMetadata)
		}
		return err
	})
	return info, err
}

func committed(tag *string, answer smithymiddleware.Metadata) objstore.Info {
	at, _ := middleware.GetServerTime(answer)
	return objstore.Info{ETag: plainTag(tag), ModTime: at}
}

// Describe implements parts.Target.
func (u *upload) Describe(ctx context.Context) (info objstore.Info, tag string, err error) {
	head, err := u.store.head(ctx, "put", u.key)
	return head.meta.Info(""), head.metadata[parts.TagKey], err
}

// Drop removes the parts that were sent.
func (u *upload) Drop(ctx context.Context) error {
	if u.id == "" {
		return nil
	}
	if err := u.store.dropParts(ctx, u.key, u.id); err != nil {
		return fmt.Errorf("drop the parts of the upload: %w; a lifecycle rule of the bucket removes them "+
			"(AbortIncompleteMultipartUpload)", err)
	}
	return nil
}

func (s *store) dropParts(ctx context.Context, key, id string) error {
	err := s.Reader.Do(ctx, func(ctx context.Context) error {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.Bucket.Bucket, Key: &key,
			UploadId: &id})
		return s.explain("put", err)
	})
	if errors.Is(err, errUploadGone) || isMissing(err) {
		return nil
	}
	return err
}
