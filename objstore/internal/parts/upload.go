package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// TagKey is the key of the metadata in which stores keep the tag of an upload. A tag is random, and
// shows whose object it is if the answer to a commit was lost.
const TagKey = "shardtool-upload"

// ErrPrecondition reports that a condition of a put did not hold.
var ErrPrecondition = errors.New("the condition of the put did not hold")

// Unsure is a failure of a commit after which the object may have been put, or that has several
// possible causes. A plain refusal is none.
type Unsure string

func (u Unsure) Error() string { return string(u) }

// Target is the object that an [Upload] puts.
type Target interface {
	// Send sends one part. Many goroutines call it.
	Send(ctx context.Context, number int, data []byte) error
	// Publish makes the object visible: the parts that were sent, and rest, which are its last
	// bytes, or all of them if none was sent. ctx ends a while after the one of the caller.
	Publish(ctx context.Context, size int64, rest []byte) (objstore.Info, error)
	// Describe describes the object of that name, whosever it is, and returns its tag. Package
	// ranged retries it.
	Describe(ctx context.Context) (info objstore.Info, tag string, err error)
	// Drop removes the parts that were sent. No other method runs then, nor later.
	Drop(ctx context.Context) error
}

// Upload implements [objstore.Upload]. Nothing runs after Commit or Abort has returned.
type Upload struct {
	reader *ranged.Reader
	name   string
	tag    string
	cond   objstore.Condition
	target Target
	parts  *Writer
	size   int64

	ctx    context.Context // of Create; Abort cancels it too
	cancel context.CancelFunc
	err    error // sticky; fs.ErrClosed once the upload is over
}

// NewUpload begins an upload. It sends nothing.
func NewUpload(ctx context.Context, r *ranged.Reader, name, tag string, cond objstore.Condition, o Options,
	t Target) *Upload {
	u := &Upload{reader: r, name: name, tag: tag, cond: cond, target: t}
	u.ctx, u.cancel = context.WithCancel(ctx)
	u.parts = New(u.ctx, o, t.Send)
	return u
}

// Write returns when p is copied. It waits while all parts in memory are being sent.
func (u *Upload) Write(p []byte) (int, error) {
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

// Commit sends the remaining bytes and publishes the object. A request in flight cannot be taken
// back: if ctx ends, Commit waits a little for the answer, so that an error nearly always means
// that nothing was put.
func (u *Upload) Commit(ctx context.Context) (objstore.Info, error) {
	if u.err == fs.ErrClosed {
		return objstore.Info{}, u.fail(u.err)
	}
	info, err := u.commit(ctx)
	if err == nil {
		u.over()
		return info, nil
	}
	if dropErr := u.drop(); dropErr != nil {
		err = fmt.Errorf("%w (and %v)", err, dropErr)
	}
	return objstore.Info{}, u.fail(err)
}

func (u *Upload) commit(ctx context.Context) (objstore.Info, error) {
	if err := cmp.Or(u.err, u.ctx.Err(), ctx.Err()); err != nil {
		return objstore.Info{}, err
	}
	stop := context.AfterFunc(ctx, u.cancel)
	_, rest, err := u.parts.Close()
	stop()
	if err := cmp.Or(ctx.Err(), u.ctx.Err(), err); err != nil {
		return objstore.Info{}, err
	}
	lingering, end := Linger(ctx, u.reader.WriteTimeout)
	defer end()
	info, err := u.target.Publish(lingering, u.size, rest)
	switch {
	case err == nil:
		info.Name, info.Size = u.name, u.size
		if info.ModTime.IsZero() {
			info.ModTime = time.Now()
		}
		return info, nil
	case ctx.Err() != nil:
		return objstore.Info{}, ctx.Err()
	}
	return u.resolve(ctx, err)
}

// resolve determines the result of a commit that failed with cause. The answer may have been lost
// after the object was put; the retry then fails because the condition no longer holds or the parts
// are gone. The tag shows whether the object is this upload's.
func (u *Upload) resolve(ctx context.Context, cause error) (objstore.Info, error) {
	_, unsure := errors.AsType[Unsure](cause)
	refused, missing := errors.Is(cause, ErrPrecondition), errors.Is(cause, fs.ErrNotExist)
	if !unsure && !refused && !missing && !ranged.GivenUp(cause) {
		return objstore.Info{}, cause
	}
	var there objstore.Info
	var tag string
	err := u.reader.Do(ctx, func(ctx context.Context) (err error) {
		there, tag, err = u.target.Describe(ctx)
		return err
	})
	there.Name = u.name
	if err == nil && tag == u.tag && there.Size == u.size {
		return there, nil
	}
	missing = errors.Is(err, fs.ErrNotExist)
	switch {
	case ctx.Err() != nil:
		return objstore.Info{}, ctx.Err()
	case u.cond.IfNoneMatch && err == nil, u.cond.IfMatch != "" &&
		(missing || err == nil && there.ETag != u.cond.IfMatch):
		return objstore.Info{}, ErrPrecondition
	case err == nil || missing || refused:
		return objstore.Info{}, cause
	}
	return objstore.Info{}, fmt.Errorf("%w (and whether it was put cannot be seen: %v)", cause, err)
}

// Abort removes the parts that were sent, with a separate context.
func (u *Upload) Abort() error {
	if u.err == fs.ErrClosed {
		return nil
	}
	return u.fail(u.drop())
}

func (u *Upload) drop() error {
	u.over()
	_, _ = u.parts.Wait() // the reason is known
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return u.target.Drop(ctx)
}

// over ends the upload.
func (u *Upload) over() {
	u.err = fs.ErrClosed
	u.cancel()
}

func (u *Upload) fail(err error) error {
	if errors.Is(err, ErrPrecondition) {
		err = objstore.ErrChanged
		if u.cond.IfNoneMatch {
			err = objstore.ErrExists
		}
	}
	return u.reader.Fail("put", u.name, err)
}

// Linger returns a context for a request that cannot be taken back. It ends some seconds after ctx,
// or after most if that is sooner.
func Linger(ctx context.Context, most time.Duration) (context.Context, func()) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	started := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer = time.AfterFunc(min(5*time.Second, most), cancel)
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
