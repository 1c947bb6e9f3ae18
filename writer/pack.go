package writer

import (
	"context"
	"errors"
	"io"

	"github.com/shardtool/shardtool/objstore"
)

// Pack writes all samples of a source and publishes them. With Options.Resume the shards that an interrupted Pack of the
// same source and options left are taken over without reading their part of the source again; at most one shard's worth is
// read twice. The source is not closed.
func Pack(ctx context.Context, store objstore.Store, src Source, opt Options) (*Result, error) {
	w, err := newWriter(ctx, store, opt, src)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	w.shardCursor = src.Cursor()
	resuming := opt.Resume
	for {
		if resuming && w.atShardStart() {
			cursor, ok, err := w.adopt(ctx)
			if err != nil {
				return nil, err
			}
			if ok {
				if err := src.Seek(ctx, cursor); err != nil {
					return nil, err
				}
				continue
			}
			resuming = false // shards are put in order: what follows a missing one is not there either
		}
		s, err := src.Next(ctx)
		var se *SampleError
		switch {
		case err == nil:
			err = w.Write(ctx, s)
		case errors.Is(err, io.EOF):
			return w.Close(ctx)
		case errors.As(err, &se) && opt.OnError == OnErrorSkip:
			w.skip(se)
			err = w.usable()
		}
		if err != nil {
			return nil, err
		}
	}
}
