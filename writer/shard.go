package writer

import (
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

// putter seals and commits shards, one at a time and in order, while the next one is being
// streamed. The first shard is a claim: of two writers into one place the second stops there.
type putter struct {
	line *pipeline
	ch   chan *openShard
	done chan struct{}
}

// newPutter returns a putter that calls seal before it commits a shard, and stored, if not nil,
// after it. A shard that seal fails for is aborted.
func newPutter(line *pipeline, puts *puts, seal func(*openShard) error, stored func(samples int64)) *putter {
	p := &putter{line: line, ch: make(chan *openShard), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for s := range p.ch {
			if line.err() != nil {
				_ = s.abort()
			} else if err := seal(s); err != nil {
				line.fail(err)
			} else if err := puts.shard(line.ctx, s); err != nil {
				line.fail(err)
			} else if stored != nil {
				stored(int64(s.samples))
			}
		}
	}()
	return p
}

func (p *putter) send(s *openShard) error {
	select {
	case p.ch <- s:
		return nil
	case <-p.line.ctx.Done():
		_ = s.abort()
		return p.line.err()
	}
}

// wait ends the goroutine; all shards sent have been committed or dropped.
func (p *putter) wait() {
	close(p.ch)
	<-p.done
}
