package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
)

// Index returns the whole index of shard i: keys, sizes, attributes. It is one read, of the end of a .tar.zst or of the
// sidecar of a .tar, whose rows have been compared with the tables'. Indexes are shared and kept, up to a limit: do not
// write to them.
func (d *Dataset) Index(ctx context.Context, i int) (*format.ShardIndex, error) {
	ctx, end := d.scope(ctx) // a Close in the middle ends the read
	defer end()
	ix, err := d.indexes.get(ctx, i, func(ctx context.Context) (*format.ShardIndex, int64, error) {
		s, err := d.shard(ctx, i)
		if err != nil {
			return nil, 0, err
		}
		ix, _, err := d.readIndex(ctx, s, indexObjectSize(s.ShardInfo))
		return ix, indexCost(ix), err
	})
	if err != nil {
		return nil, d.afterClose(err)
	}
	return ix, nil
}

// readIndex reads a shard's whole index, out of an object that must have that size unless it is 0,
// and returns how many bytes that were.
func (d *Dataset) readIndex(ctx context.Context, s *shard, size uint64) (ix *format.ShardIndex, n int, err error) {
	err = d.readRange(ctx, indexObject(s.ShardInfo), size, int64(indexObjectSize(s.ShardInfo)-s.Tail), int64(s.Tail), func(raw []byte) error {
		n = len(raw)
		t, err := parseTail(s, raw)
		if err == nil {
			ix, err = decodeCold(s, t, raw)
		}
		return err
	})
	return ix, n, err
}

// indexObject is the object that a shard's index lies in, indexObjectSize its length.
func indexObject(s *format.ShardInfo) string { return s.IndexObject() }

func indexObjectSize(s *format.ShardInfo) uint64 {
	if s.Plain() {
		return s.Tail
	}
	return s.Size
}

// parseTail reads the hot index out of an object's last bytes and compares it with what the tables say of the shard.
func parseTail(s *shard, last []byte) (*format.Tail, error) {
	t, need, err := format.ParseTail(last, int64(indexObjectSize(s.ShardInfo)))
	switch {
	case err != nil:
		return nil, err
	case need > int64(s.Tail):
		return nil, fmt.Errorf("%w: an index of at least %d bytes, the tables say %d", format.ErrMismatch, need, s.Tail)
	case need > 0:
		return nil, needMore(need)
	case t.Len != int64(s.Tail):
		return nil, fmt.Errorf("%w: an index of %d bytes, the tables say %d", format.ErrMismatch, t.Len, s.Tail)
	case t.Plain() != s.Plain() || t.Foreign != s.Foreign:
		return nil, fmt.Errorf("%w: the index of a shard of another kind", format.ErrMismatch)
	case s.Plain() && t.DataSize != s.Size:
		return nil, fmt.Errorf("%w: an index over %d bytes, the shard has %d", format.ErrMismatch, t.DataSize, s.Size)
	case t.Samples != s.Samples:
		return nil, fmt.Errorf("%w: an index of %d samples, the tables say %d", format.ErrMismatch, t.Samples, s.Samples)
	case !slices.Equal(t.Rows, s.rows):
		return nil, fmt.Errorf("%w: the index's rows are not those of the tables: the shard was exchanged", format.ErrMismatch)
	}
	// The identity is a note in the index, so it may be absent; when it is there it has to be the same.
	if content, ok := t.Meta[metaContent]; ok && content != s.Hash.String() {
		return nil, fmt.Errorf("%w: the index says content %s, the tables say %s", format.ErrMismatch, content, s.Hash)
	}
	return t, s.Index.Check(t.Index)
}

// metaContent is the key in an index's metadata whose value is the shard's identity in hexadecimal.
const metaContent = "content"

// needMore is how many of the last bytes parseTail wants.
type needMore int64

func (n needMore) Error() string { return fmt.Sprintf("%d bytes of the index are wanted", int64(n)) }

// decodeCold reads the rest out of all of the index's bytes.
func decodeCold(s *shard, t *format.Tail, raw []byte) (*format.ShardIndex, error) {
	off, n := t.Cold()
	from := off - (int64(indexObjectSize(s.ShardInfo)) - int64(s.Tail))
	if from < 0 || n < 0 || from+n > int64(len(raw)) {
		return nil, fmt.Errorf("%w: %w: the cold index lies outside", format.ErrCorrupt, io.ErrUnexpectedEOF)
	}
	ix, err := t.DecodeCold(raw[from : from+n])
	if err == nil {
		err = s.Index.Check(t.Index)
	}
	return ix, err
}

// indexCost is what an index takes in memory, nearly.
func indexCost(ix *format.ShardIndex) int64 {
	if ix == nil {
		return 0
	}
	n := 8 * int64(len(ix.ShapeOf)+len(ix.Gaps))
	for _, k := range ix.Keys {
		n += 16 + int64(len(k))
	}
	for _, s := range ix.Sizes {
		n += 8 * int64(len(s))
	}
	return n + 8*int64(len(ix.Attrs)*len(ix.Keys))
}

// readHot reads the hot index alone: mostly 64 KiB, which is a part of most indexes. It returns what was read, too.
func (d *Dataset) readHot(ctx context.Context, s *shard) (t *format.Tail, last []byte, err error) {
	size := indexObjectSize(s.ShardInfo)
	for n := min(int64(s.Tail), format.TailGuess); ; {
		err := d.readRange(ctx, indexObject(s.ShardInfo), size, int64(size)-n, n, func(raw []byte) (err error) {
			last = raw
			t, err = parseTail(s, raw)
			return err
		})
		var more needMore
		if !errors.As(err, &more) {
			return t, last, err
		}
		n = int64(more)
	}
}
