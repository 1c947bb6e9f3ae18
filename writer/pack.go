package writer

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Pack writes all samples of a source and publishes them. It does not close the source.
//
// With Options.Resume it adopts the shards that an interrupted Pack of the same source and options
// put, and does not read their part of the source again: at most one shard and the blocks in flight
// are read twice. If that Pack published, the result is what it published.
func Pack(ctx context.Context, store objstore.Store, src Source, opt Options) (*Result, error) {
	w, err := prepare(ctx, store, opt, src, 0, 0)
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

// writeAll writes the rest of the source, and takes the metadata that it has learned. With Resume
// it first adopts the shards that are in the store.
func (w *Writer) writeAll(ctx context.Context, src Source) error {
	w.shard.start = w.mark()
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
				w.shard.start = w.mark()
				w.shard.start.cursor = cursor
				continue
			}
			resuming = false // shards are put in order, so none follows a missing one
		}
		s, err := src.Next(ctx)
		var se *SampleError
		switch {
		case err == nil:
			w.chooseLayout(src)
			err = w.Write(ctx, s)
		case errors.Is(err, io.EOF):
			w.learn(src)
			return nil
		case errors.As(err, &se) && (se.LeaveOut || w.opt.Faults.Skip):
			err = w.leaveOut(se)
		}
		if err != nil {
			return err
		}
	}
}

// learn takes the metadata that the samples have brought.
func (w *Writer) learn(src Source) {
	if l, ok := src.(learner); ok {
		meta := format.Metadata{}
		maps.Copy(meta, w.input.meta)
		maps.Copy(meta, l.Learned())
		w.input.meta = meta
	}
}
