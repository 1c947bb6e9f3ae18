package writer

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// hold takes a share of the store's lock, if the store has one, until release is called: a prune
// would delete objects that a pack has put and not yet published. A user without write permission
// gets no lock and needs none.
func hold(ctx context.Context, store objstore.Store, who string, log *slog.Logger) (release func(), err error) {
	share := objstore.TraitsOf(store).Share
	if share == nil {
		return func() {}, nil
	}
	late := time.AfterFunc(time.Second, func() { log.Warn("waiting for a prune of the same data set") })
	defer late.Stop()
	release, err = share(ctx, who)
	if errors.Is(err, objstore.ErrReadOnly) || errors.Is(err, fs.ErrPermission) {
		return func() {}, nil
	}
	return release, err
}
