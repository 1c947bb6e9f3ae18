package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
)

// openShard is a shard being written.
type openShard struct {
	name    string
	up      objstore.Upload
	sum     *xxhash.Digest // of the bytes after the frames, to compare with an existing object
	size    int64
	index   metadata.IndexBuilder
	hasher  metadata.ShardHasher
	samples uint64
	skipped int64 // left out by workers
	list    skippedList
	blocks  int
	// end and notes, the list as stored, are set once all blocks are written.
	end   *shardEnd
	notes []byte
	rows  []format.Row // of all frames, set by seal
	// sidecar is the index object of a plain shard.
	sidecar []byte
}

func newOpenShard(name string, up objstore.Upload) *openShard {
	return &openShard{name: name, up: up, sum: xxhash.New()}
}

// frame writes a frame, and gives its memory back.
func (s *openShard) frame(f *frame, pool *buffers) error {
	for _, p := range f.pieces {
		n, err := s.up.Write(p)
		s.size += int64(n)
		if err != nil {
			return format.Place{Shard: s.name, Block: s.blocks, Offset: s.size}.Wrap(err)
		}
	}
	pool.put(f.stored)
	return nil
}

// write writes what follows the frames.
func (s *openShard) write(p []byte) error {
	_, _ = s.sum.Write(p)
	n, err := s.up.Write(p)
	s.size += int64(n)
	return err
}

// finish writes what follows the blocks, the end of the archive and the index, and returns the
// shard as the tables have it. content is its identity.
func (s *openShard) finish(ix *metadata.ShardIndex, content format.Hash,
	plain bool) (e metadata.ShardEntry, err error) {
	s.rows = ix.Rows
	tail, err := metadata.AppendTail(nil, ix, plain)
	if err == nil {
		err = s.write(metadata.EndOfArchive(plain))
	}
	if plain {
		s.sidecar = tail
	} else if err == nil {
		err = s.write(tail)
	}
	if err != nil {
		return e, format.Place{Shard: s.name, Block: -1, Offset: s.size}.Wrap(err)
	}
	return entryOf(s.name, s.size, ix, int64(len(tail)), metadata.HashIndex(tail), content), nil
}

// entryOf is a shard as the tables have it: an object of size bytes with an index of tail bytes,
// whose identity is hash. content is the identity of the shard.
func entryOf(name string, size int64, ix *metadata.ShardIndex, tail int64, hash metadata.IndexHash,
	content format.Hash) metadata.ShardEntry {
	e := metadata.ShardEntry{Rows: ix.Rows, ShardInfo: metadata.ShardInfo{
		Name: name, Size: uint64(size), Tail: uint64(tail), Samples: uint64(ix.Keys.Len()), Rows: uint64(len(ix.Rows)),
		Hash:  content,
		Index: metadata.IndexTag{Hash: hash}, Foreign: ix.Foreign, Layout: ix.Layout, Numbered: ix.Keys.Ranges(),
	}}
	for _, r := range ix.Rows {
		if r.Samples > 0 {
			e.Blocks++
		}
	}
	e.FirstKey, e.LastKey = ix.Keys.Ends()
	return e
}

// unfinished finds a shard that an interrupted run put. ix is nil where there is none, and where a
// plain shard lacks its sidecar: it is written again, and compared.
func unfinished(ctx context.Context, store objstore.Store,
	name string) (ix *metadata.ShardIndex, e metadata.ShardEntry, err error) {
	info, err := store.Stat(ctx, name)
	var tail *metadata.Tail
	if err == nil {
		ix, tail, err = loadIndex(ctx, store, (&metadata.ShardInfo{Name: name}).IndexObject())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, e, nil
	}
	if err != nil {
		return nil, e, err
	}
	want := int64(tail.DataSize)
	if !tail.Plain() {
		want += tail.Len
	}
	content, err := format.ParseHash(ix.Meta["content"])
	if err == nil && info.Size != want {
		err = fmt.Errorf("%w: the object has %d bytes, its index says %d", format.ErrCorrupt, info.Size, want)
	}
	return ix, entryOf(name, info.Size, ix, tail.Len, tail.Index, content), format.InShard(name, err)
}

func (s *openShard) abort() error { return s.up.Abort() }

// shard commits a shard, and its sidecar after it.
func (p *puts) shard(ctx context.Context, s *openShard) error {
	err := p.commit(ctx, s.up, s.name, placed{size: s.size, rows: s.rows, sum: s.sum.Sum64()})
	if err != nil || s.sidecar == nil {
		return err
	}
	info := metadata.ShardInfo{Name: s.name}
	return p.immutable(ctx, info.IndexObject(), s.sidecar)
}
