package writer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// openShard is a shard on its way to the store.
type openShard struct {
	name    string
	up      objstore.Upload
	sum     *xxhash.Digest // of all bytes: compares with an object that is there already
	size    int64
	index   format.IndexBuilder
	hasher  format.ShardHasher
	samples uint64
	skipped int64 // by workers
	list    skippedList
	blocks  int
	// first and last are the least and greatest key.
	first, last string
	// sidecar is the index object of a plain shard.
	sidecar []byte
}

func newOpenShard(name string, up objstore.Upload) *openShard {
	return &openShard{name: name, up: up, sum: xxhash.New()}
}

func (s *openShard) write(p []byte) error {
	_, _ = s.sum.Write(p)
	n, err := s.up.Write(p)
	s.size += int64(n)
	return err
}

func (s *openShard) key(k string) {
	if s.samples == 0 && s.first == "" {
		s.first, s.last = k, k
	}
	s.first, s.last = min(s.first, k), max(s.last, k)
}

func (s *openShard) abort() error { return s.up.Abort() }

// putter commits shards, one at a time and in order, while the next one is being streamed. The first one is a claim: of two
// writers into one place the second stops there.
type putter struct {
	w    *Writer
	ch   chan *openShard
	done chan struct{}
}

func newPutter(w *Writer) *putter {
	p := &putter{w: w, ch: make(chan *openShard), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for s := range p.ch {
			if w.ctx.Err() != nil {
				_ = s.abort()
			} else if err := commitShard(w.ctx, w.store, s); err != nil {
				w.fail(err)
			}
		}
	}()
	return p
}

func (p *putter) send(ctx context.Context, s *openShard) error {
	err := sendTo(ctx, p.ch, s)
	if err != nil {
		_ = s.abort()
	}
	return err
}

// wait ends the goroutine; all shards sent have been committed or dropped.
func (p *putter) wait() {
	close(p.ch)
	<-p.done
}

func commitShard(ctx context.Context, store objstore.Store, s *openShard) error {
	_, err := s.up.Commit(ctx)
	if errors.Is(err, objstore.ErrExists) {
		err = sameObject(ctx, store, s.name, s.size, s.sum.Sum64())
	}
	if err != nil || s.sidecar == nil {
		return err
	}
	return putImmutable(ctx, store, sidecarName(s.name), s.sidecar)
}

// sidecarName is the index object of a plain shard: x.tar has x.tar.shidx.
func sidecarName(shard string) string {
	return shard[:len(shard)-len(format.TarSuffix)] + format.SidecarSuffix
}

// putImmutable puts an object whose bytes are a function of its name and of what the generation holds: one that is there
// with the same bytes will do.
func putImmutable(ctx context.Context, store objstore.Store, name string, data []byte) error {
	_, err := objstore.Put(ctx, store, name, data, objstore.Condition{IfNoneMatch: true})
	if errors.Is(err, objstore.ErrExists) {
		return sameObject(ctx, store, name, int64(len(data)), xxhash.Sum64(data))
	}
	return err
}

// putNamed puts an object whose name is the hash of its bytes, which write writes: one that is there with so many bytes is this one.
func putNamed(ctx context.Context, store objstore.Store, name string, size int64, write func(to io.Writer) error) error {
	up, err := store.Create(ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	if err := write(up); err != nil {
		return errors.Join(err, up.Abort())
	}
	_, err = up.Commit(ctx)
	if errors.Is(err, objstore.ErrExists) {
		if info, serr := store.Stat(ctx, name); serr == nil && info.Size == size {
			return nil
		}
	}
	return err
}

// sameObject compares an object with the size and xxh64 of what we would have put.
func sameObject(ctx context.Context, store objstore.Store, name string, size int64, sum uint64) error {
	lost := fmt.Errorf("%w: %s is there with other bytes, and no manifest names it: it is from an unfinished pack with other "+
		"sources or options, or from one that runs now; `shardtool prune` removes leftovers", ErrLost, name)
	obj, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return err
	}
	if info.Size != size {
		return lost
	}
	h := xxhash.New()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-off)]
		if err := obj.ReadAt(ctx, buf, off); err != nil {
			return err
		}
		_, _ = h.Write(buf)
	}
	if h.Sum64() != sum {
		return lost
	}
	return nil
}
