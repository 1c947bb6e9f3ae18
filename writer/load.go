package writer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// maxSummary bounds manifest.json, which grows with the number of fields alone.
const maxSummary = 64 << 20

// loadSummary reads manifest.json and its version in the store.
func loadSummary(ctx context.Context, store objstore.Store) (*metadata.Summary, objstore.Info, error) {
	data, info, err := objstore.ReadAll(ctx, store, format.ManifestName, maxSummary)
	if err != nil {
		return nil, info, err
	}
	sum, err := metadata.DecodeSummary(data)
	return sum, info, err
}

// current is the generation that manifest.json names; all zero where there is no data set.
type current struct {
	manifest *metadata.Manifest
	tables   string        // object name
	info     objstore.Info // of manifest.json
}

// find reads manifest.json; nil where there is none. load reads the tables that it names.
func (c *current) find(ctx context.Context, store objstore.Store) (*metadata.Summary, error) {
	sum, info, err := loadSummary(ctx, store)
	if errors.Is(err, fs.ErrNotExist) {
		*c = current{}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.tables, c.info = sum.Tables, info
	return sum, nil
}

// read is find and load. Where another program publishes meanwhile and deletes these tables, it
// reads again.
func (c *current) read(ctx context.Context, store objstore.Store) (*metadata.Summary, error) {
	for n := 1; ; n++ {
		sum, err := c.find(ctx, store)
		if err != nil || sum == nil {
			return nil, err
		}
		if err = overtaken(ctx, store, c.info, c.load(ctx, store)); n == attempts || !errors.Is(err, ErrLost) {
			return sum, err
		}
	}
}

func (c *current) load(ctx context.Context, store objstore.Store) (err error) {
	c.manifest, err = loadManifest(ctx, store, c.tables)
	return err
}

// next is the number of the generation after this one.
func (c *current) next() uint64 {
	if c.manifest == nil {
		return 1
	}
	return c.manifest.Generation + 1
}

// loadTotals reads the tables of a generation without their parts.
func loadTotals(ctx context.Context, store objstore.Store, name string) (t *metadata.Tables, err error) {
	obj, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err == nil {
		t, err = metadata.OpenTables(func(p []byte, off int64) error { return obj.ReadAt(ctx, p, off) }, info.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// loadManifest reads the tables of a generation or of a part. Tables of a generation must have the
// hash in their name.
func loadManifest(ctx context.Context, store objstore.Store, name string) (*metadata.Manifest, error) {
	data, _, err := objstore.ReadAll(ctx, store, name, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	t, err := tablesOf(data)
	var m *metadata.Manifest
	if err == nil {
		m, err = t.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if names.IsTables(name) {
		err = metadata.CheckTables(name, sha256.Sum256(data))
	}
	return m, err
}

// tablesOf opens tables that are in memory.
func tablesOf(data []byte) (*metadata.Tables, error) {
	return metadata.OpenTables(func(p []byte, off int64) error {
		if off+int64(len(p)) > int64(len(data)) {
			return io.ErrUnexpectedEOF
		}
		copy(p, data[off:])
		return nil
	}, int64(len(data)))
}

// loadIndex reads the whole index at the end of an object: a shard, or the sidecar of a plain one.
func loadIndex(ctx context.Context, store objstore.Store, name string) (*metadata.ShardIndex, *metadata.Tail, error) {
	obj, err := store.Open(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer obj.Close()
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	need := min(info.Size, metadata.TailGuess)
	for {
		buf := make([]byte, need)
		if err := obj.ReadAt(ctx, buf, info.Size-need); err != nil {
			return nil, nil, err
		}
		tail, more, err := metadata.ParseTail(buf, info.Size)
		if err == nil && more == 0 && tail.Len > need { // only the hot index was read
			more = tail.Len
		}
		if err != nil {
			return nil, nil, format.InShard(name, err)
		}
		if more > 0 {
			need = more
			continue
		}
		off, n := tail.Cold()
		from := off - (info.Size - need)
		ix, err := tail.DecodeCold(buf[from : from+n])
		return ix, tail, format.InShard(name, err)
	}
}

// loadEntry reads the index of a shard, and compares it with what the tables have of the shard.
func loadEntry(ctx context.Context, store objstore.Store, s *metadata.ShardEntry) (*metadata.ShardIndex, error) {
	ix, tail, err := loadIndex(ctx, store, s.IndexObject())
	if err == nil && (!slices.Equal(ix.Rows, s.Rows) || uint64(ix.Keys.Len()) != s.Samples) {
		err = fmt.Errorf("%w: the index has other rows than the tables: the shard was replaced", format.ErrMismatch)
	}
	if err == nil {
		err = s.Index.Hash.Check(tail.Index)
	}
	return ix, err
}

// currentTotals is loadTotals of the current generation, and the name of its tables; the zero value
// where there is no data set.
func currentTotals(ctx context.Context, store objstore.Store) (t *metadata.Tables, name string, err error) {
	sum, _, err := loadSummary(ctx, store)
	if errors.Is(err, fs.ErrNotExist) {
		return &metadata.Tables{}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	t, err = loadTotals(ctx, store, sum.Tables)
	return t, sum.Tables, err
}

// Classes returns the names of the classes of a data set that was packed with a class field, in the
// order of their numbers. It returns nil where there is no data set or the data set has no classes.
func Classes(ctx context.Context, store objstore.Store) ([]string, error) {
	t, name, err := currentTotals(ctx, store)
	if err != nil {
		return nil, err
	}
	classes, err := metadata.Classes(t.Meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return classes, nil
}

// gone reports whether a number is among ascending numbers.
func gone(numbers []uint64, n uint64) bool {
	_, found := slices.BinarySearch(numbers, n)
	return found
}

// attempts bounds how often an operation is repeated after other programs published meanwhile.
const attempts = 100

// again reports whether to repeat an operation on the generation with the given tables: the error
// wraps ErrLost, and another generation, which explains it, is current now. Where the same one is
// current, objects of it are missing, and will be the next time.
func again(ctx context.Context, store objstore.Store, tables string, err error) bool {
	if !errors.Is(err, ErrLost) || errors.Is(err, ErrIncomplete) || ctx.Err() != nil {
		return false
	}
	sum, _, err := loadSummary(ctx, store)
	return err == nil && sum.Tables != tables
}

// overtaken explains an object that is missing: where manifest.json is no longer the one that was
// found, another program has published a generation and deleted the one before it. The error then
// wraps ErrLost.
func overtaken(ctx context.Context, store objstore.Store, found objstore.Info, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now, serr := store.Stat(ctx, format.ManifestName)
	if serr != nil || now.ETag == found.ETag {
		return err
	}
	return fmt.Errorf("%w: it published another generation and deleted this one: %w", ErrLost, err)
}
