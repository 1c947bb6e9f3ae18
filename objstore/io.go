package objstore

import (
	"context"
	"fmt"
	"math"
)

// ReadAll reads an entire object of at most max bytes. It refuses a larger one with [ErrTooLarge]
// before it allocates or reads anything. The Info describes the version read.
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
