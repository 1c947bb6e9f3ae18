// Package catalog reads the description of a data set: the manifest, the tables, the indexes of
// its shards, and the keys table.
//
//	manifest.json ──▶ tables ──▶ parts ──▶ shards with their rows ──▶ fetch.Job
//	                                   ──▶ indexes (keys, sizes, attributes)
//	                  keys table, or indexes ──▶ numbers of the samples with a key
//
// Opening reads the manifest and the front of the tables. Everything else is loaded when it is
// first wanted, and kept up to a limit.
package catalog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/order"
)

// MaxSummary bounds manifest.json, which holds a few hundred bytes and a line for each field.
const MaxSummary = 16 << 20

// Catalog is one generation of a data set. It may be used by several goroutines at once.
type Catalog struct {
	Source *fetch.Source
	Name   string           // of the tables
	Tables *metadata.Tables // loaded as far as Open needs them
	// Object is the tables, and Size its bytes.
	Object objstore.Object
	Size   int64
	// Stated is manifest.json as it was read, and Raw its bytes; nil when a generation was asked for.
	Stated *metadata.Summary
	Raw    []byte

	infos   cache[int, *Part]
	rows    cache[int, []format.Row]
	indexes cache[int, *metadata.ShardIndex]
	own     cache[int, []format.Row] // by shard, unless fits
	fits    bool                     // the cache has room for all rows
	order   cache[struct{}, *groups]
	blocks  cache[struct{}, order.Table] // of a data set whose groups have several
	soon    chan struct{}                // a turn for each shard that is loaded before it is wanted
	anew    atomic.Int32                 // reads of the tables that go past what the store has kept

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // loads in the background
}

// Open opens the generation that manifest.json names, or the one with the given tables. It then
// reads all bytes of the tables, to compare them with the hash in their name. limit bounds each of
// the caches, in bytes. Open returns the errors of reader.Open.
func Open(ctx context.Context, source *fetch.Source, tables string, limit int64) (*Catalog, error) {
	return open(ctx, source, tables, limit, tables != "")
}

// OpenDamaged is Open for callers that check the tables part by part.
func OpenDamaged(ctx context.Context, source *fetch.Source, tables string, limit int64) (*Catalog, error) {
	return open(ctx, source, tables, limit, false)
}

func open(ctx context.Context, source *fetch.Source, tables string, limit int64, hashed bool) (*Catalog, error) {
	c := &Catalog{Source: source}
	c.infos.limit, c.rows.limit, c.own.limit, c.indexes.limit = limit, limit, limit, limit
	c.soon = make(chan struct{}, max(source.Requests(), 1))
	// Loads in the background outlive the call that asks for them, not the catalog.
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err := source.Twice(ctx, fetch.Key{Name: format.ManifestName}, func(anew bool) error {
		if anew {
			c.anew.Add(1)
			defer c.anew.Add(-1)
		}
		return c.open(ctx, tables, hashed, anew)
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Catalog) open(ctx context.Context, tables string, hashed, anew bool) error {
	if c.Name = tables; tables == "" {
		if err := c.readSummary(ctx, anew); err != nil {
			return err
		}
	}
	c.Source.Tables = c.Name
	object, err := c.Source.Store.Open(ctx, c.Name)
	if err != nil {
		return c.noTables(ctx, err)
	}
	if c.Object != nil {
		c.Object.Close() // of the first attempt
	}
	c.Object = object
	// Most tables are short: later loads of their parts find them in the bytes read here.
	front, info, err := objstore.ReadFront(ctx, object, objstore.Front)
	if err != nil {
		return c.noTables(ctx, err)
	}
	c.Size = info.Size
	// The tables read through this function as long as they live: under the caller's context while
	// Open runs, and under the catalog's afterwards.
	opening := ctx
	read := func(p []byte, off int64) error {
		if c.anew.Load() > 0 {
			fetch.Forget(c.ctx, object, off, len(p))
		} else if off+int64(len(p)) <= int64(len(front)) {
			copy(p, front[off:])
			return nil
		}
		if opening != nil {
			return object.ReadAt(opening, p, off)
		}
		return object.ReadAt(c.ctx, p, off)
	}
	if c.Tables, err = metadata.OpenTables(read, info.Size); err != nil {
		return c.inTables(err)
	}
	rows := uint64(0)
	for i := range c.Tables.Parts {
		rows += c.Tables.Parts[i].Rows
	}
	c.fits = len(c.Tables.Parts) < 2 || rowsCost(int(rows)) <= c.rows.limit
	if hashed {
		err = c.checkName(read)
	} else if c.Stated != nil {
		err = c.Stated.Check(c.Tables)
	}
	opening = nil
	return err
}

// checkName compares the hash of the tables with the one in their name. It does not read their
// front again, which is all of most tables.
func (c *Catalog) checkName(read metadata.ReadRange) error {
	const step = 8 << 20
	hash, buf := sha256.New(), []byte(nil)
	for off := int64(0); off < c.Size; off += int64(len(buf)) {
		n := min(step, c.Size-off)
		if off == 0 {
			n = min(n, objstore.Front)
		}
		buf = slices.Grow(buf[:0], int(n))[:n]
		if err := read(buf, off); err != nil {
			return err
		}
		hash.Write(buf)
	}
	return metadata.CheckTables(c.Name, format.Hash(hash.Sum(nil)))
}

// readSummary reads manifest.json, which names the tables.
func (c *Catalog) readSummary(ctx context.Context, anew bool) error {
	raw, err := c.Source.ReadWhole(ctx, format.ManifestName, MaxSummary, anew)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.noDataset(ctx, err)
	case errors.Is(err, objstore.ErrTooLarge):
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	case err != nil:
		return err
	}
	if c.Stated, err = metadata.DecodeSummary(raw); err != nil {
		return err
	}
	c.Raw, c.Name = raw, c.Stated.Tables
	return nil
}

// noDataset describes what is in the store instead of a data set.
func (c *Catalog) noDataset(ctx context.Context, cause error) error {
	const enough = 1000 // names to look at: a bucket may have millions
	shards, n := 0, 0
	var inside string // a data set
	for info, err := range c.Source.Store.List(ctx, "") {
		if err != nil || n == enough {
			break
		}
		n++
		if path.Base(info.Name) == format.ManifestName && inside == "" {
			inside = path.Dir(info.Name)
		}
		if strings.HasSuffix(info.Name, format.ZstdSuffix) || strings.HasSuffix(info.Name, format.TarSuffix) {
			shards++
		}
	}
	hint := "check the path; `shardtool pack` makes a data set"
	if c.Source.Layer {
		hint = "check the name; `shardtool layer ls` lists the layers of a data set, and `shardtool layer add` makes one"
	}
	switch {
	case inside != "":
		hint = fmt.Sprintf("%s in it is one: give its address", inside)
	case shards > 0:
		hint = fmt.Sprintf("it has %s: if a pack was interrupted, go on with `shardtool pack --resume`; "+
			"for foreign ones see `shardtool index`", plain.Plural(shards, "archive"))
	}
	why := cause.Error()
	if e, ok := errors.AsType[*objstore.Error](cause); ok { // the message names the store
		why = e.Err.Error()
	}
	if why == fs.ErrNotExist.Error() || why == syscall.ENOENT.Error() {
		why = "there is no " + format.ManifestName
		if n == 0 {
			hint += "; a pack that is running publishes its data set at the end"
		}
	}
	return fmt.Errorf("no data set in %s: %s: %s%w", c.Source.Store, why, hint, plain.Silent(cause))
}

// noTables explains tables that cannot be opened.
func (c *Catalog) noTables(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil || !errors.Is(err, fs.ErrNotExist):
		return err
	case c.Stated == nil:
		return fmt.Errorf("no generation %s in %s: %s; purge and prune delete earlier ones%w", names.Generation(c.Name),
			c.Source.Store, c.generations(ctx), plain.Silent(err))
	}
	// The manifest names the tables, so this is damage and not an absent data set.
	return fmt.Errorf("%w: %s names tables that are missing: %v", format.ErrCorrupt, format.ManifestName, err)
}

// generations lists the generations in the store.
func (c *Catalog) generations(ctx context.Context) string {
	const most = 8
	var found []string
	for info, err := range c.Source.Store.List(ctx, "manifest-") {
		if err != nil {
			return "see `shardtool inspect` for the one that is published"
		}
		if g := names.Generation(info.Name); g != "" {
			if found = append(found, g); len(found) == most {
				break
			}
		}
	}
	if len(found) == 0 {
		return "there is none"
	}
	return "it has " + strings.Join(found, ", ")
}

// inTables names the tables as the place of an error.
func (c *Catalog) inTables(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// Close ends what runs in the background and waits for it. A second Close does nothing.
func (c *Catalog) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	c.cancel()
	c.wg.Wait()
	c.Source.Close()
	if c.Object == nil {
		return nil
	}
	return c.Object.Close()
}

// background runs f in a goroutine that Close waits for.
func (c *Catalog) background(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fetch.ErrClosed
	}
	c.wg.Go(f)
	return nil
}

// Scope returns a context that also ends with the catalog. The caller must call the function.
func (c *Catalog) Scope(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(fetch.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// AfterClose returns err, or the error that the data set was closed if that is why a read failed.
func (c *Catalog) AfterClose(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return fetch.ErrClosed
	}
	return err
}

// KeysTable returns the object name of the keys table; empty when there is none.
func (c *Catalog) KeysTable() string {
	return c.Tables.KeysName()
}

// Summary returns manifest.json as the tables say it must be.
func (c *Catalog) Summary() *metadata.Summary { return c.Tables.Summary(c.Name) }
