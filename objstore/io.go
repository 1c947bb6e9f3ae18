package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
)

// Front is how much of an object is read to learn its size: with one request, where a description
// first and the bytes then would be two.
const Front = 1 << 20

// FrontReader is an Object of a store on a network, whose first bytes come with its description.
type FrontReader interface {
	Object
	// ReadFront fills p with the first bytes of the object and describes the version that the handle
	// reads. n is less than len(p) if the object has fewer, or one request does not give more.
	ReadFront(ctx context.Context, p []byte) (n int, info Info, err error)
}

// ReadFront reads up to max first bytes of an object, and describes it. If the store is not on a
// network, a description costs nothing, and ReadFront reads no bytes.
func ReadFront(ctx context.Context, o Object, max int64) (front []byte, info Info, err error) {
	f, ok := o.(FrontReader)
	if !ok || max <= 0 {
		info, err = o.Info(ctx)
		return nil, info, err
	}
	front = make([]byte, min(max, Front))
	n, info, err := f.ReadFront(ctx, front)
	if errors.Is(err, ErrNoRanges) { // perhaps the whole object can be read
		info, err = o.Info(ctx)
		return nil, info, err
	}
	if n < len(front)/2 {
		return bytes.Clone(front[:n]), info, err // do not keep the rest
	}
	return front[:n], info, err
}

// ReadAll reads an entire object of at most max bytes. It refuses a larger one with [ErrTooLarge]
// before it reads more than max bytes of it. The Info describes the version read.
func ReadAll(ctx context.Context, store Store, name string, max int64) (data []byte, info Info, err error) {
	object, err := store.Open(ctx, name)
	if err != nil {
		return nil, Info{}, err
	}
	defer func() {
		if closeErr := object.Close(); err == nil && closeErr != nil {
			data, info, err = nil, Info{}, closeErr
		}
	}()
	front, info, err := ReadFront(ctx, object, max)
	if err != nil {
		return nil, Info{}, err
	}
	if info.Size > max || info.Size > math.MaxInt {
		err := fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTooLarge, info.Size, max)
		return nil, Info{}, NewError("get", store.String(), name, err)
	}
	if front != nil && int64(len(front)) == info.Size {
		return front, info, nil
	}
	data = make([]byte, info.Size)
	n := copy(data, front)
	if err := object.ReadAt(ctx, data[n:], int64(n)); err != nil {
		return nil, Info{}, err
	}
	return data, info, nil
}

// Put creates one object from data. It has the contract of [Store.Create] and [Upload.Commit]:
// after an error the name refers to what it referred to before.
func Put(ctx context.Context, store Store, name string, data []byte, cond Condition) (Info, error) {
	upload, err := store.Create(ctx, name, cond)
	if err != nil {
		return Info{}, err
	}
	if _, err := upload.Write(data); err != nil {
		// Report the first failure. Abort can only fail to remove invisible bytes.
		_ = upload.Abort()
		return Info{}, err
	}
	return upload.Commit(ctx)
}
