package writer

import (
	"context"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/objstore"
)

// openShard is a shard being written.
type openShard struct {
	name    string
	up      objstore.Upload
	sum     *xxhash.Digest // of the bytes after the frames, to compare with an existing object
	size    int64
	index   sections.IndexBuilder
	hasher  sections.ShardHasher
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

func (s *openShard) abort() error { return s.up.Abort() }

// shard commits a shard, and its sidecar after it.
func (p *puts) shard(ctx context.Context, s *openShard) error {
	err := p.commit(ctx, s.up, s.name, placed{size: s.size, rows: s.rows, sum: s.sum.Sum64()})
	if err != nil || s.sidecar == nil {
		return err
	}
	info := sections.ShardInfo{Name: s.name}
	return p.immutable(ctx, info.IndexObject(), s.sidecar)
}
