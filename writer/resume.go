package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/shardtool/shardtool/format"
)

// adopted is a shard that an interrupted run has left, found to be what this run would write.
type adopted struct {
	entry format.ShardEntry
	index *format.ShardIndex
}

// atShardStart says whether the next sample begins a shard.
func (w *Writer) atShardStart() bool { return w.cur == nil && w.shardBytes == 0 }

// adopt takes over the next shard from the store when it is there and was written from the same place in the same sources
// with the same options. It returns where the source goes on, or ok = false when there is no such shard.
func (w *Writer) adopt(ctx context.Context) (cursor string, ok bool, err error) {
	if err := w.usable(); err != nil {
		return "", false, err
	}
	name := w.shardName(w.shardNumber)
	info, err := w.store.Stat(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	ix, tail, err := loadIndex(ctx, w.store, name)
	if errors.Is(err, fs.ErrNotExist) { // a plain shard whose sidecar was not put any more: written again, and compared
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("%w; `shardtool prune` removes what an unfinished pack left", err)
	}
	if err := w.sameOrigin(name, ix.Meta); err != nil {
		return "", false, err
	}
	want := int64(tail.DataSize)
	if !tail.Plain() {
		want += tail.Len
	}
	hash, err := format.ParseHash(ix.Meta["content"])
	if err == nil && info.Size != want {
		err = fmt.Errorf("%w: object of %d bytes, its index says %d", format.ErrCorrupt, info.Size, want)
	}
	if err != nil {
		return "", false, format.Position(err, name, -1, -1, "")
	}
	a := &adopted{index: ix, entry: format.ShardEntry{Rows: ix.Rows, ShardInfo: format.ShardInfo{
		Name: name, Size: uint64(info.Size), Tail: uint64(tail.Len), Samples: tail.Samples, Blocks: tail.Total.Blocks,
		Rows: uint64(len(ix.Rows)), Hash: hash,
	}}}
	for i, k := range ix.Keys {
		if i == 0 {
			a.entry.FirstKey, a.entry.LastKey = k, k
		}
		a.entry.FirstKey, a.entry.LastKey = min(a.entry.FirstKey, k), max(a.entry.LastKey, k)
	}
	w.shardNumber++
	w.shardCursor = ix.Meta["cursor_end"]
	b := &block{adopt: a}
	return w.shardCursor, true, w.send(ctx, b, 0)
}

// sameOrigin compares what a shard says of where it comes from with this run.
func (w *Writer) sameOrigin(name string, meta format.Metadata) error {
	for _, c := range []struct{ what, key, want string }{
		{"sources", "source", w.fingerprint}, {"options", "options", w.opt.canonical()}, {"tool version", "tool", toolVersion()},
		{"place in the sources", "cursor_start", w.shardCursor},
	} {
		if meta[c.key] != c.want {
			return fmt.Errorf("%w: %s was written with other %s (%s; now %s): repeat that pack to resume it, or remove what it left "+
				"with `shardtool prune`", ErrSource, name, c.what, meta[c.key], c.want)
		}
	}
	return nil
}

// adopt counts a shard that is in place.
func (e *emitter) adopt(a *adopted) error {
	ix := a.index
	e.opened++
	before := e.prog.PayloadBytes
	for f, sizes := range ix.Sizes {
		for _, n := range sizes {
			e.count(ix.Fields[f], n)
		}
	}
	for _, at := range ix.Attributes {
		if err := e.attribute(at); err != nil {
			return err
		}
	}
	for _, k := range ix.Keys {
		if err := e.number(k); err != nil {
			return err
		}
	}
	e.entries = append(e.entries, a.entry)
	e.prog.Adopted += int64(len(ix.Keys))
	e.prog.AdoptedBytes += e.prog.PayloadBytes - before
	e.prog.Blocks += int64(a.entry.Blocks)
	e.prog.Shards++
	e.prog.StoredBytes += int64(a.entry.Size)
	e.report()
	return nil
}
