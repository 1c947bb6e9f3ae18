package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Index returns the whole index of a shard: keys, sizes, attributes. It is one read, of the end of
// a .tar.zst or of the sidecar of a .tar. The rows in it have been compared with the tables'. The
// key of a removed sample is empty. Indexes are shared and kept, up to a limit: do not write to
// them.
func (c *Catalog) Index(ctx context.Context, number int) (*metadata.ShardIndex, error) {
	ctx, end := c.Scope(ctx) // a Close in the middle ends the read
	defer end()
	ix, err := c.indexes.get(ctx, number, func(ctx context.Context) (*metadata.ShardIndex, int64, error) {
		s, err := c.Shard(ctx, number)
		if err != nil {
			return nil, 0, err
		}
		_, size := IndexObject(s.ShardInfo)
		ix, _, err := c.ReadIndex(ctx, s, size)
		if err == nil {
			for _, n := range s.Removed {
				ix.Keys.Clear(int(n - s.First))
			}
		}
		return ix, indexCost(ix), err
	})
	return ix, c.AfterClose(err)
}

// ReadIndex reads a shard's whole index, out of an object that must have the given size unless that
// is 0. It returns how many bytes it read.
func (c *Catalog) ReadIndex(ctx context.Context, s *fetch.Shard,
	size uint64) (ix *metadata.ShardIndex, n int, err error) {
	n, err = c.readCold(ctx, s, size, func(t *metadata.Tail, cold []byte) (err error) {
		ix, err = t.DecodeCold(cold)
		return err
	})
	return ix, n, err
}

// readCold reads what ReadIndex does, has decode decode the cold index, and checks the hash of all.
func (c *Catalog) readCold(ctx context.Context, s *fetch.Shard, size uint64,
	decode func(t *metadata.Tail, cold []byte) error) (n int, err error) {
	name, whole := IndexObject(s.ShardInfo)
	begin := int64(whole - s.Tail)
	err = c.Source.ReadRange(ctx, name, size, begin, int64(s.Tail), func(raw []byte) error {
		n = len(raw)
		t, err := parseTail(s, raw)
		if err != nil {
			return err
		}
		from, length := t.Cold()
		if from -= begin; from < 0 || length < 0 || from+length > int64(len(raw)) {
			return fmt.Errorf("%w: %w: the cold index lies outside", format.ErrCorrupt, io.ErrUnexpectedEOF)
		}
		if err := decode(t, raw[from:from+length]); err != nil {
			return err
		}
		return s.Index.Hash.Check(t.Index)
	})
	return n, err
}

// Columns returns the columns of attributes of a shard, as metadata.Tail.DecodeColumns does. They
// are not kept.
func (c *Catalog) Columns(ctx context.Context, number int, names []string) (columns []metadata.AttrColumn, err error) {
	ctx, end := c.Scope(ctx)
	defer end()
	s, err := c.Shard(ctx, number)
	if err == nil {
		_, size := IndexObject(s.ShardInfo)
		_, err = c.readCold(ctx, s, size, func(t *metadata.Tail, cold []byte) (err error) {
			columns, err = t.DecodeColumns(cold, names)
			return err
		})
	}
	return columns, c.AfterClose(err)
}

// KeyGroups reads groups [from, to) of the keys table and appends their entries to dst.
func (c *Catalog) KeyGroups(ctx context.Context, dst []samplekey.Entry, from,
	to int64) (entries []samplekey.Entry, err error) {
	ctx, end := c.Scope(ctx)
	defer end()
	table := samplekey.Table{Entries: c.Tables.Samples}
	off, n := table.Range(from, to)
	err = c.Source.ReadRange(ctx, c.KeysTable(), uint64(table.Size()), off, n, func(raw []byte) (err error) {
		entries, err = table.Decode(dst, raw, from, to)
		return err
	})
	return entries, c.AfterClose(err)
}

// IndexObject returns the object that holds a shard's index, and the object's size.
func IndexObject(s *metadata.ShardInfo) (name string, size uint64) {
	if s.Plain() {
		return s.IndexObject(), s.Tail
	}
	return s.Name, s.Size
}

// parseTail reads the hot index out of an object's last bytes and compares it with the tables.
func parseTail(s *fetch.Shard, last []byte) (*metadata.Tail, error) {
	_, size := IndexObject(s.ShardInfo)
	t, need, err := metadata.ParseTail(last, int64(size))
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
		return nil, fmt.Errorf("%w: an index of %d samples, the tables say %d", format.ErrMismatch, t.Samples,
			s.Samples)
	case !t.Layout.Equal(s.Layout) || !slices.Equal(t.Numbered, s.Numbered):
		return nil, fmt.Errorf("%w: the index has another layout or other numbered keys than the tables: the shard was replaced", format.ErrMismatch)
	case !slices.Equal(t.Rows, s.Rows):
		return nil, fmt.Errorf("%w: the index has other rows than the tables: the shard was replaced",
			format.ErrMismatch)
	}
	// The identity is a note in the index, so it may be absent; when it is there it has to be the
	// same.
	if content, ok := t.Meta[metaContent]; ok && content != s.Content().String() {
		return nil, fmt.Errorf("%w: the index says content %s, the tables say %s", format.ErrMismatch, content,
			s.Content())
	}
	return t, s.Index.Hash.Check(t.Index)
}

// metaContent is the key in an index's metadata whose value is the shard's identity in hexadecimal.
const metaContent = "content"

// needMore is how many of the last bytes parseTail needs.
type needMore int64

func (n needMore) Error() string { return fmt.Sprintf("%d bytes of the index are wanted", int64(n)) }

// indexCost returns about how much memory an index takes.
func indexCost(ix *metadata.ShardIndex) int64 {
	if ix == nil {
		return 0
	}
	n := 8*int64(len(ix.ShapeOf)+len(ix.Gaps)) + ix.Memory()
	return n + 8*int64(len(ix.Attrs)*ix.Keys.Len())
}

// ReadHot reads only the hot index: mostly 64 KiB, which is a part of most indexes. It also returns
// the bytes that it read.
func (c *Catalog) ReadHot(ctx context.Context, s *fetch.Shard) (t *metadata.Tail, last []byte, err error) {
	name, size := IndexObject(s.ShardInfo)
	for n := min(int64(s.Tail), metadata.TailGuess); ; {
		err := c.Source.ReadRange(ctx, name, size, int64(size)-n, n, func(raw []byte) (err error) {
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
