package writer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/shardtool/shardtool/objstore"
)

// checkRights returns the error for a store on a network in which nothing can be put or listed, so
// that no source is read for it. To publish needs no right to delete: without it, there is a
// warning. It changes nothing: no object has the name that it lists, deletes, and puts on condition
// that it is another version.
func checkRights(ctx context.Context, store objstore.Store, log *slog.Logger) error {
	if !objstore.TraitsOf(store).Remote() {
		return nil
	}
	name := objstore.ProbeName()
	for _, err := range store.List(ctx, name) {
		if err != nil {
			return err
		}
	}
	_, err := objstore.Put(ctx, store, name, []byte("x"), objstore.Condition{IfMatch: "1"})
	if err != nil && !errors.Is(err, objstore.ErrChanged) {
		return err
	}
	if err := store.Delete(ctx, name); err != nil {
		if ctx.Err() != nil {
			return err
		}
		log.Warn("these credentials may not delete: what a killed pack leaves stays, and prune and purge fail", "store",
			store.String(), "error", err)
	}
	return nil
}
