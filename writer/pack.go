package writer

import (
	"context"
	"errors"
	"io"

	"github.com/shardtool/shardtool/objstore"
)

// Pack writes all samples of a source and publishes them. With Options.Resume the shards that an interrupted Pack of the
// same source and options left are taken over without reading their part of the source again: what is read twice is at most
// a shard's worth and the blocks that were in flight. Where that Pack came as far as publishing, the result is what it
// published. The source is not closed.
func Pack(ctx context.Context, store objstore.Store, src Source, opt Options) (*Result, error) {
	w, err := prepare(ctx, store, opt, src)
	if err != nil {
		return nil, err
	}
	defer w.release()
	if opt.Resume && w.finished() {
		return w.published(ctx)
	}
	w.start(ctx)
	defer func() { _ = w.Abort() }()
	if err := w.writeAll(ctx, src); err != nil {
		return nil, err
	}
	return w.Close(ctx)
}

// writeAll writes what the source has from here to its end. With Resume it first takes over the shards that are in place.
func (w *Writer) writeAll(ctx context.Context, src Source) error {
	w.shard.cursor = src.Cursor()
	resuming := w.opt.Resume
	for {
		if resuming && w.atShardStart() {
			cursor, ok, err := w.adopt(ctx)
			if err != nil {
				return err
			}
			if ok {
				if err := src.Seek(ctx, cursor); err != nil {
					return err
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
			return nil
		case errors.As(err, &se) && (se.LeaveOut || w.opt.OnError == OnErrorSkip):
			err = w.leaveOut(se)
		}
		if err != nil {
			return err
		}
	}
}
