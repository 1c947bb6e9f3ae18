package reader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// maxSummary is the most that manifest.json may have: it holds a few hundred bytes, and a line a field.
const maxSummary = 16 << 20

// errClosed is what every method of a closed Dataset returns.
var errClosed = fmt.Errorf("reader: the data set is closed: %w", fs.ErrClosed)

// Dataset is one generation of a data set, open for reading. Its methods may be called from many goroutines; Close frees
// what it holds.
type Dataset struct {
	store  objstore.Store
	opts   Options
	name   string // of the tables
	tables *format.Tables
	object objstore.Object // the tables
	size   int64           // of the tables
	stated *format.Summary // manifest.json as it was read; nil when a generation was asked for
	raw    []byte          // its bytes

	infos   cache[int, *partInfo]
	rows    cache[int, []format.Row]
	indexes cache[int, *format.ShardIndex]
	objects *objects
	scratch scratchPool
	random  *semaphore.Weighted // bytes of all random reads

	flips flips        // of bytes, on their way here
	anew  atomic.Int32 // reads of the tables that go past what the store has kept

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // loads in the background
}

// Open opens the generation that manifest.json names, or that of Options.Generation. It reads manifest.json and the front of the
// tables: two objects and a handful of requests, whatever the size of the data set.
//
// An error wraps fs.ErrNotExist when there is no data set (or no such generation), format.ErrCorrupt or
// format.ErrMismatch when what is there is damaged or does not belong together, format.ErrVersion when a newer program
// wrote it.
func Open(ctx context.Context, store objstore.Store, opts Options) (*Dataset, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	d := &Dataset{store: store, opts: opts, objects: newObjects(store), random: semaphore.NewWeighted(opts.Memory)}
	d.infos.limit, d.rows.limit, d.indexes.limit = opts.cacheLimit(), opts.cacheLimit(), opts.cacheLimit()
	// Loads in the background outlive the call that asks for them, not the data set.
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err = d.twice(ctx, handleKey{name: format.ManifestName}, func(anew bool) error {
		if anew {
			d.anew.Add(1)
			defer d.anew.Add(-1)
		}
		return d.open(ctx, anew)
	})
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Dataset) open(ctx context.Context, anew bool) error {
	if err := d.readSummary(ctx, anew); err != nil {
		return err
	}
	object, err := d.store.Open(ctx, d.name)
	if err != nil {
		return d.noTables(ctx, err)
	}
	if d.object != nil {
		d.object.Close() // of the first attempt
	}
	d.object = object
	info, err := object.Info(ctx)
	if err != nil {
		return d.noTables(ctx, err)
	}
	d.size = info.Size
	// The tables read through this function for as long as they live: under the caller's context while Open runs, under
	// the data set's afterwards.
	opening := ctx
	read := func(p []byte, off int64) error {
		if d.anew.Load() > 0 {
			forget(d.ctx, object, off, len(p))
		}
		if opening != nil {
			return object.ReadAt(opening, p, off)
		}
		return object.ReadAt(d.ctx, p, off)
	}
	if d.tables, err = format.OpenTables(read, info.Size); err != nil {
		return d.inTables(err)
	}
	opening = nil
	if d.stated != nil && d.stated.Digest != format.DigestString(d.tables.Digest) {
		return fmt.Errorf("reader: %w: %s says digest %s, %s says %s: one of them was edited or comes from another data set",
			format.ErrMismatch, format.ManifestName, d.stated.Digest, d.name, format.DigestString(d.tables.Digest))
	}
	return nil
}

// readSummary finds out the tables' name.
func (d *Dataset) readSummary(ctx context.Context, anew bool) error {
	if d.opts.Generation != "" {
		d.name = tablesName(d.opts.Generation)
		return nil
	}
	raw, err := d.readWhole(ctx, format.ManifestName, maxSummary, anew)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.noDataset(ctx, err)
	case errors.Is(err, objstore.ErrTooLarge):
		return fmt.Errorf("reader: %w: %w", format.ErrCorrupt, err)
	case err != nil:
		return fmt.Errorf("reader: %w", err)
	}
	if d.stated, err = format.DecodeSummary(raw); err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	d.raw, d.name = raw, d.stated.Tables
	return nil
}

// noDataset says what is there instead.
func (d *Dataset) noDataset(ctx context.Context, cause error) error {
	const enough = 1000 // names to look at: a bucket may have millions
	shards, n := 0, 0
	for info, err := range d.store.List(ctx, "") {
		if err != nil || n == enough {
			break
		}
		n++
		if strings.HasSuffix(info.Name, format.ZstdSuffix) || strings.HasSuffix(info.Name, format.TarSuffix) {
			shards++
		}
	}
	hint := "check the path; `shardtool pack` makes a data set"
	if shards > 0 {
		hint = fmt.Sprintf("there are %d archives: if a pack was interrupted, go on with `shardtool pack --resume`; "+
			"if they are foreign, see `shardtool index`", shards)
	}
	return fmt.Errorf("reader: no data set in %s: %w: %s", d.store, cause, hint)
}

// noTables explains tables that cannot be opened.
func (d *Dataset) noTables(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil || !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reader: %w", err)
	case d.stated == nil:
		return fmt.Errorf("reader: no generation %s in %s: %w: %s", d.opts.Generation, d.store, err, d.generations(ctx))
	}
	// Named by the manifest, so damage: not an absent data set.
	return fmt.Errorf("reader: %w: %s names tables that are missing: %v", format.ErrCorrupt, format.ManifestName, err)
}

// generations says which ones there are.
func (d *Dataset) generations(ctx context.Context) string {
	const most = 8
	var names []string
	for info, err := range d.store.List(ctx, "manifest-") {
		if err != nil {
			return "see `shardtool inspect` for the one that is published"
		}
		if g, ok := strings.CutSuffix(strings.TrimPrefix(info.Name, "manifest-"), ".bin"); ok {
			if names = append(names, g); len(names) == most {
				break
			}
		}
	}
	if len(names) == 0 {
		return "there is none"
	}
	return "there are " + strings.Join(names, ", ")
}

// inTables says that an error lies in the tables.
func (d *Dataset) inTables(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reader: %s: %w", d.name, err)
}

// Close frees the data set: iterations and reads that still run end with an error that wraps fs.ErrClosed. It waits for
// its own goroutines, not for the caller's. A second Close does nothing.
func (d *Dataset) Close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	if again {
		return nil
	}
	d.cancel()
	d.wg.Wait()
	d.objects.close()
	d.scratch.close()
	if d.object == nil {
		return nil
	}
	return d.object.Close()
}

// background runs f in a goroutine that Close waits for.
func (d *Dataset) background(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.wg.Go(f)
	return nil
}

// scope returns a context that ends with the data set too; call the function it returns.
func (d *Dataset) scope(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Store is where the data set lies.
func (d *Dataset) Store() objstore.Store { return d.store }

// NumSamples, NumShards and NumBlocks count what the generation has.
func (d *Dataset) NumSamples() uint64 { return d.tables.Samples }

// NumShards is the number of shards; Shard takes numbers below it.
func (d *Dataset) NumShards() int { return int(d.tables.Shards) }

// NumBlocks is the number of blocks.
func (d *Dataset) NumBlocks() uint64 { return d.tables.Blocks }

// Digest is the identity of the content: see format.Digest.
func (d *Dataset) Digest() format.Hash { return d.tables.Digest }

// Generation counts from 1.
func (d *Dataset) Generation() uint64 { return d.tables.Generation }

// Tables is the object name of the generation's tables.
func (d *Dataset) Tables() string { return d.name }

// Parent is the object name of the tables of the generation before; empty for the first.
func (d *Dataset) Parent() string { return d.tables.Parent }

// KeysTable is the object name of the keys table; empty when there is none.
func (d *Dataset) KeysTable() string {
	return (&format.Manifest{Keys: d.tables.Keys}).KeysName()
}

// Fields are the totals of all fields, in ascending order of names. Do not write to them.
func (d *Dataset) Fields() []format.FieldTotal { return d.tables.Fields }

// Attributes are the attributes that samples may have, in ascending order of names. Do not write to them.
func (d *Dataset) Attributes() []format.Attribute { return d.tables.Attributes }

// Meta is what the packer noted about the whole. Do not write to it.
func (d *Dataset) Meta() format.Metadata { return d.tables.Meta }

// Bytes is the length of all shards, sidecars included; DecodedBytes that of their blocks once decoded.
func (d *Dataset) Bytes() uint64 { return d.tables.Bytes }

// DecodedBytes is the length of all blocks once decoded: payloads, tar headers and padding.
func (d *Dataset) DecodedBytes() uint64 { return d.tables.Decoded }

// Summary is manifest.json as the tables say it must be.
func (d *Dataset) Summary() *format.Summary { return d.tables.Summary(d.name) }
