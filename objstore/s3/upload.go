package s3

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
)

const (
	// tagKey is the metadata key of the tag that identifies an upload.
	tagKey = "shardtool-upload"
	// abortTimeout bounds the removal of an upload's parts, whose own context may have ended.
	abortTimeout = 30 * time.Second
)

// upload sends bytes to S3 while they are written. Nothing runs after Commit or Abort has returned.
type upload struct {
	store *Store
	name  string
	key   string
	cond  objstore.Condition
	tag   string
	size  int64

	ctx    context.Context // of Create; Abort cancels it too
	cancel context.CancelFunc
	err    error // sticky; fs.ErrClosed once the upload is over

	parts     *parts.Writer
	once      sync.Once // begins the multipart upload, with the first part
	id        string    // "" if none was begun
	idErr     error
	declared  bool // the upload declared CRC-32C
	algorithm types.ChecksumAlgorithm
	whole     []byte // the object, if it is not in parts; set by drain

	mu   sync.Mutex
	done []types.CompletedPart
}

// Create begins an upload. It sends nothing.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, s.fail("put", name, err)
	}
	u := &upload{store: s, name: name, key: key, cond: cond, tag: randomTag()}
	u.ctx, u.cancel = context.WithCancel(ctx)
	if s.client.Options().RequestChecksumCalculation == aws.RequestChecksumCalculationWhenSupported {
		u.algorithm = types.ChecksumAlgorithmCrc32
	}
	u.parts = parts.New(u.ctx, parts.Options{
		Size: int(s.opts.UploadPartSize), Workers: s.opts.UploadConcurrency, Segment: s.segmentParts, Growth: growth, Most: maxParts,
	}, u.sendPart)
	return u, nil
}

func randomTag() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Write returns when p is copied. It waits while all parts in memory are being sent.
func (u *upload) Write(p []byte) (int, error) {
	u.err = cmp.Or(u.err, u.ctx.Err())
	if u.err != nil {
		return 0, u.fail(u.err)
	}
	n, err := u.parts.Write(p)
	u.size += int64(n)
	if err != nil {
		u.err = cmp.Or(u.ctx.Err(), err)
	}
	return n, u.fail(u.err)
}

// Commit sends the remaining bytes and publishes the object.
func (u *upload) Commit(ctx context.Context) (objstore.Info, error) {
	err := cmp.Or(u.err, u.ctx.Err(), ctx.Err())
	if err == nil {
		err = u.store.checkCondition(ctx, u.cond, false)
	}
	if err == nil {
		err = u.drain(ctx)
	}
	if err == nil && u.id != "" {
		err = u.store.checkCondition(ctx, u.cond, true)
	}
	var info objstore.Info
	if err == nil {
		info, err = u.publish(ctx)
	}
	if err != nil {
		if u.err != fs.ErrClosed {
			if abortErr := u.drop(); abortErr != nil {
				u.store.opts.Logger.Warn("parts of a failed upload stay in the bucket; a lifecycle rule removes them",
					"store", u.store.address, "object", u.name, "error", abortErr)
			}
		}
		return objstore.Info{}, u.fail(err)
	}
	u.over()
	return info, nil
}

// drain waits until the last parts are sent.
func (u *upload) drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, u.cancel)
	defer stop()
	_, whole, err := u.parts.Close()
	u.whole = whole
	return cmp.Or(ctx.Err(), u.ctx.Err(), err)
}

// Abort removes the parts that were sent, with a separate context.
func (u *upload) Abort() error {
	if u.err == fs.ErrClosed {
		return nil
	}
	return u.fail(u.drop())
}

func (u *upload) drop() error {
	u.over()
	u.parts.Wait()
	if u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	if err := u.store.dropParts(ctx, u.key, u.id); err != nil {
		return fmt.Errorf("drop the parts of the upload: %w; a lifecycle rule of the bucket removes them "+
			"(AbortIncompleteMultipartUpload)", err)
	}
	return nil
}

func (s *Store) dropParts(ctx context.Context, key, id string) error {
	err := s.reader.Do(ctx, func(ctx context.Context) error {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: &key, UploadId: &id})
		return s.explain("put", err)
	})
	if errors.Is(err, errUploadGone) || isMissing(err) {
		return nil
	}
	return err
}

// over ends the upload.
func (u *upload) over() {
	u.err = fs.ErrClosed
	u.cancel()
}

func (u *upload) fail(err error) error { return u.store.fail("put", u.name, err) }
