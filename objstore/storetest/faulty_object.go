package storetest

import (
	"context"
	"io/fs"

	"github.com/shardtool/shardtool/objstore"
)

type faultyObject struct {
	store *Faulty
	inner objstore.Object
	name  string
}

func (o *faultyObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	e := o.store.next()
	if !e.fails {
		return o.inner.ReadAt(ctx, p, off)
	}
	switch {
	case e.half:
		p = p[:len(p)/2]
	case !e.run:
		p = nil
	}
	if len(p) > 0 {
		if err := o.inner.ReadAt(ctx, p, off); err != nil {
			return err
		}
	}
	return o.store.fail("get", o.name)
}

func (o *faultyObject) Info(ctx context.Context) (objstore.Info, error) {
	if o.store.next().fails {
		return objstore.Info{}, o.store.fail("stat", o.name)
	}
	return o.inner.Info(ctx)
}

func (o *faultyObject) Close() error { return o.inner.Close() }

// faultyUpload keeps the contract of an Upload in spite of the fault: after a failed Write every
// Write fails, and a failed Commit ends the upload.
type faultyUpload struct {
	store *Faulty
	inner objstore.Upload
	name  string
	err   error
}

func (u *faultyUpload) Write(p []byte) (int, error) {
	e := u.store.next()
	if u.err != nil {
		return 0, u.err
	}
	if !e.fails {
		return u.inner.Write(p)
	}
	u.err = u.store.fail("put", u.name)
	switch {
	case e.half:
		p = p[:len(p)/2]
	case !e.run:
		return 0, u.err
	}
	n, err := u.inner.Write(p)
	if err != nil {
		return n, err
	}
	return n, u.err
}

func (u *faultyUpload) Commit(ctx context.Context) (objstore.Info, error) {
	e := u.store.next()
	err := u.err
	if err == nil && e.fails {
		err = u.store.fail("put", u.name)
	}
	if err != nil && (u.err != nil || !e.run) {
		// Report the fault. Abort can only fail to remove invisible bytes.
		_ = u.inner.Abort()
		u.err = objstore.NewError("put", u.store.String(), u.name, fs.ErrClosed)
		return objstore.Info{}, err
	}
	info, innerErr := u.inner.Commit(ctx)
	if innerErr != nil || err == nil {
		return info, innerErr
	}
	return objstore.Info{}, err
}

// Abort frees what the inner store holds. After a simulated death it also reports a failure,
// because no caller may rely on an Abort that did not happen.
func (u *faultyUpload) Abort() error {
	err := u.inner.Abort()
	if u.store.died() {
		return u.store.fail("put", u.name)
	}
	return err
}
