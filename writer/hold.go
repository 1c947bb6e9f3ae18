package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// hold shares the store's lock, where it has one, until release is called: a prune would delete
// what a pack has put and not yet published. Who may not write goes without: nothing will be put.
func hold(ctx context.Context, store objstore.Store, who string, log *slog.Logger) (release func(), err error) {
	share := objstore.TraitsOf(store).Share
	if share == nil {
		return func() {}, nil
	}
	late := time.AfterFunc(time.Second, func() { log.Warn("waiting until a prune of the same data set has ended") })
	defer late.Stop()
	release, err = share(ctx, who)
	if errors.Is(err, objstore.ErrReadOnly) || errors.Is(err, fs.ErrPermission) {
		return func() {}, nil
	}
	return release, err
}

// describe names a pack to those it keeps out.
func (o *Options) describe() string {
	if o.parts > 0 {
		return fmt.Sprintf("pack of part %d of %d of %s", o.part, o.parts, o.Name)
	}
	return "pack of " + o.Name
}
