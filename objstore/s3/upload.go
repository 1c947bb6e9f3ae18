package s3

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/objstore"
)

const (
	// tagKey is the metadata key of the tag that identifies an upload.
	tagKey = "shardtool-upload"
	// abortTimeout bounds the removal of an upload's parts, whose own context may have ended.
	abortTimeout = 30 * time.Second
)

// upload sends bytes to S3 while they are written. The transfer manager runs in a goroutine that
// reads the other end of a pipe. The goroutine ends before Commit or Abort returns.
type upload struct {
	store *Store
	name  string
	key   string
	cond  objstore.Condition
	tag   string
	size  int64

	ctx    context.Context // of Create; Abort cancels it too
	cancel context.CancelFunc
	parts  *parts
	err    error // sticky; fs.ErrClosed once the upload is over

	pipe *io.PipeWriter // nil before the first Write or Commit
	done chan struct{}
	sent error // result of the goroutine, valid when done is closed
}

// Create begins an upload. It sends nothing.
func (s *Store) Create(ctx context.Context, name string, cond objstore.Condition) (objstore.Upload, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, s.fail("put", name, err)
	}
	u := &upload{store: s, name: name, key: key, cond: cond, tag: randomTag(), parts: &parts{Client: s.client, store: s}}
	u.ctx, u.cancel = context.WithCancel(ctx)
	return u, nil
}

func randomTag() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// begin starts the goroutine.
func (u *upload) begin() {
	if u.pipe != nil {
		return
	}
	r, w := io.Pipe()
	u.pipe, u.done = w, make(chan struct{})
	go func() {
		defer close(u.done)
		// The manager's read of the pipe ignores its context.
		stop := context.AfterFunc(u.ctx, func() { r.CloseWithError(u.ctx.Err()) })
		defer stop()
		u.sent = u.send(r)
		r.CloseWithError(errors.Join(u.sent, fs.ErrClosed))
	}()
}

// send runs the transfer manager over one segment of the stream after the other.
func (u *upload) send(r io.Reader) error {
	o := &u.store.opts
	size, workers := o.UploadPartSize, o.UploadConcurrency
	perSegment := u.store.segmentParts
	for sent := 0; sent < maxParts; sent += perSegment {
		u.parts.base = int32(sent)
		part := &segment{r: r, left: size * int64(perSegment)}
		manager := transfermanager.New(u.parts, func(t *transfermanager.Options) {
			t.PartSizeBytes = size
			t.MultipartUploadThreshold = size
			t.Concurrency = workers
			t.RequestChecksumCalculation = u.store.client.Options().RequestChecksumCalculation
		})
		_, err := manager.UploadObject(u.ctx, &transfermanager.UploadObjectInput{
			Bucket:   &u.store.bucket,
			Key:      &u.key,
			Body:     part,
			Metadata: map[string]string{tagKey: u.tag},
		})
		if err != nil || part.left > 0 {
			return err
		}
		size, workers = size*growth, max(1, workers/growth)
	}
	return objstore.ErrTooLarge
}

// Write returns when p is copied. It waits while all parts in memory are being sent.
func (u *upload) Write(p []byte) (int, error) {
	u.err = cmp.Or(u.err, u.ctx.Err())
	if u.err != nil {
		return 0, u.fail(u.err)
	}
	u.begin()
	n, err := u.pipe.Write(p)
	u.size += int64(n)
	if err != nil {
		u.err = u.broken()
		return n, u.fail(u.err)
	}
	return n, nil
}

// broken waits for the goroutine, which has stopped reading, and returns the reason.
func (u *upload) broken() error {
	<-u.done
	if err := u.ctx.Err(); err != nil {
		return err
	}
	return u.explain(u.sent)
}

func (u *upload) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrTooLarge) || errors.Is(err, errNoUploadID):
		return err
	}
	return final(u.store.explain("put", err))
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
	if err == nil && u.parts.complete != nil {
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
	u.begin()
	u.pipe.Close()
	select {
	case <-u.done:
	case <-ctx.Done():
		u.cancel()
		<-u.done
		return ctx.Err()
	}
	if u.sent != nil {
		return u.broken()
	}
	return nil
}

// Abort removes the parts that were sent, with a separate context.
func (u *upload) Abort() error {
	if u.err == fs.ErrClosed {
		return nil
	}
	return u.fail(u.drop())
}

func (u *upload) drop() error {
	u.cancel()
	if u.pipe != nil {
		u.pipe.CloseWithError(context.Canceled)
		<-u.done
	}
	id := u.parts.id()
	u.over()
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	_, err := u.store.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.store.bucket, Key: &u.key, UploadId: aws.String(id),
	})
	if err = u.explain(err); err == nil || err == errUploadGone || isMissing(err) {
		return nil
	}
	return fmt.Errorf("drop the parts of the upload: %w; a lifecycle rule of the bucket removes them "+
		"(AbortIncompleteMultipartUpload)", err)
}

// over ends the upload, which then owns neither object nor parts.
func (u *upload) over() {
	u.err = fs.ErrClosed
	u.cancel()
	u.parts = &parts{}
}

func (u *upload) fail(err error) error { return u.store.fail("put", u.name, err) }
