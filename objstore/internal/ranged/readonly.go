package ranged

import (
	"context"

	"github.com/shardtool/shardtool/objstore"
)

// ReadOnly has the methods that write, for a store that refuses them.
type ReadOnly struct {
	Store string                                       // the address
	Check func(ctx context.Context, name string) error // of the name and the context
	Err   error                                        // wraps objstore.ErrReadOnly
}

// Create returns an error that wraps [objstore.ErrReadOnly].
func (r ReadOnly) Create(ctx context.Context, name string, _ objstore.Condition) (objstore.Upload, error) {
	return nil, r.refuse(ctx, "put", name)
}

// Delete returns an error that wraps [objstore.ErrReadOnly].
func (r ReadOnly) Delete(ctx context.Context, name string) error {
	return r.refuse(ctx, "delete", name)
}

func (r ReadOnly) refuse(ctx context.Context, op, name string) error {
	err := r.Check(ctx, name)
	if err == nil {
		err = r.Err
	}
	return objstore.NewError(op, r.Store, name, err)
}
