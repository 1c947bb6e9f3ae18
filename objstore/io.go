package objstore

import (
	"context"
	"fmt"
	"math"
)

// ReadAll reads one whole object of at most max bytes. A larger one is refused with [ErrTooLarge] before anything is
// read; what is allocated is the object's size, once. The Info is that of the version read.
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
	info, err = object.Info(ctx)
	if err != nil {
		return nil, Info{}, err
	}
	if info.Size > max || info.Size > math.MaxInt {
		err := fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTooLarge, info.Size, max)
		return nil, Info{}, NewError("get", store.String(), name, err)
	}
	data = make([]byte, info.Size)
	if err := object.ReadAt(ctx, data, 0); err != nil {
		return nil, Info{}, err
	}
	return data, info, nil
}

// Put creates one object from data, under the same contract as [Store.Create] and [Upload.Commit]: on error nothing is
// visible under the name that was not there before.
func Put(ctx context.Context, store Store, name string, data []byte, cond Condition) (Info, error) {
	upload, err := store.Create(ctx, name, cond)
	if err != nil {
		return Info{}, err
	}
	if _, err := upload.Write(data); err != nil {
		// The first failure is the one to report; Abort can only fail to remove what nobody sees.
		_ = upload.Abort()
		return Info{}, err
	}
	return upload.Commit(ctx)
}
