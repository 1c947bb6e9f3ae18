package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
)

// puts puts immutable objects and records them, for a commit to compare with the objects that the
// store then has. It is safe for concurrent use.
type puts struct {
	store objstore.Store

	mu   sync.Mutex
	done map[string]placed
}

// placed is an object that this run put, or found in the store with the same bytes. They are
// compared by the checksums of a shard's frames, which its rows have, and by a sum of the rest: a
// sum of all bytes would be one more pass over them.
type placed struct {
	size int64
	rows []format.Row // of the frames that a shard begins with
	sum  uint64       // xxh64 of the bytes after those
	etag string
}

func newPuts(store objstore.Store) *puts { return &puts{store: store, done: map[string]placed{}} }

func (p *puts) remember(name string, o placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[name] = o
}

// commit makes an upload visible. An object of that name with the same bytes is accepted: an
// interrupted run put it, or another one that puts the same.
func (p *puts) commit(ctx context.Context, up objstore.Upload, name string, o placed) error {
	info, err := up.Commit(ctx)
	o.etag = info.ETag
	if errors.Is(err, objstore.ErrExists) {
		var equal bool
		if o.etag, equal, err = o.same(ctx, p.store, name, ""); err == nil && !equal {
			err = fmt.Errorf("%w: %s has other bytes, and no manifest names it: it belongs to an unfinished pack with other "+
				"sources or options, or to one that is running; a pack that overwrites replaces leftovers, and `shardtool prune` deletes them (%w)", ErrLost, name, ErrSource)
		}
	}
	if err == nil {
		p.remember(name, o)
	}
	return err
}

// immutable puts an object whose bytes are a function of its name and of the generation.
func (p *puts) immutable(ctx context.Context, name string, data []byte) error {
	up, err := p.store.Create(ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	if _, err := up.Write(data); err != nil {
		_ = up.Abort() // the first failure is reported
		return err
	}
	return p.commit(ctx, up, name, placed{size: int64(len(data)), sum: xxhash.Sum64(data)})
}

// named puts an object of that size, whose bytes write produces and whose name is their hash. An
// existing object of the same size is assumed identical, because its name is its hash.
func (p *puts) named(ctx context.Context, name string, size int64, write func(to io.Writer) error) error {
	up, err := p.store.Create(ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	sum := xxhash.New()
	if err := write(io.MultiWriter(sum, up)); err != nil {
		return errors.Join(err, up.Abort())
	}
	info, err := up.Commit(ctx)
	if errors.Is(err, objstore.ErrExists) {
		there, failed := p.store.Stat(ctx, name)
		switch {
		case failed == nil && there.Size == size:
			info, err = there, nil
		case failed != nil && !errors.Is(failed, fs.ErrNotExist):
			err = failed
		}
	}
	if err == nil {
		p.remember(name, placed{size: size, sum: sum.Sum64(), etag: info.ETag})
	}
	return err
}

// same compares an object with what was put. It does not read an object whose tag is known.
func (o placed) same(ctx context.Context, store objstore.Store, name,
	known string) (etag string, equal bool, err error) {
	obj, err := store.Open(ctx, name)
	if err != nil {
		return "", false, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil || info.Size != o.size {
		return "", false, err
	}
	if known != "" && info.ETag == known {
		return known, true, nil
	}
	h := comparison{rows: o.rows, rest: xxhash.New()}
	if err := readThrough(ctx, obj, o.size, h.add); err != nil {
		return "", false, err
	}
	return info.ETag, !h.differs && h.rest.Sum64() == o.sum, nil
}

// readThrough calls f with the bytes of an object of that size, piece by piece.
func readThrough(ctx context.Context, obj objstore.Object, size int64, f func(p []byte) error) error {
	buf := make([]byte, min(size, 1<<20))
	for off := int64(0); off < size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-off)]
		err := obj.ReadAt(ctx, buf, off)
		if err == nil {
			err = f(buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// comparison compares the bytes of a shard with the rows of its frames, and sums those after them.
type comparison struct {
	rows    []format.Row // of the frames that have not ended
	at      int          // bytes of the first of them
	crc     uint32       // of them
	rest    *xxhash.Digest
	differs bool
}

func (c *comparison) add(p []byte) error {
	for len(p) > 0 && len(c.rows) > 0 {
		k := min(len(p), int(c.rows[0].Stored)-c.at)
		c.crc, c.at, p = codec.UpdateChecksum(c.crc, p[:k]), c.at+k, p[k:]
		if c.at == int(c.rows[0].Stored) {
			c.differs = c.differs || c.crc != c.rows[0].CRC
			c.rows, c.at, c.crc = c.rows[1:], 0, 0
		}
	}
	_, err := c.rest.Write(p)
	return err
}
