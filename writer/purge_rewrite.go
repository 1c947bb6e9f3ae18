package writer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/objstore"
)

// rewriting is what all rewrites of a purge share.
type rewriting struct {
	store      objstore.Store
	puts       *puts
	purged     []uint64 // numbers of samples that were purged before
	attributes []string // to clear
	memory     int64    // for a block
	cursors    bool     // the notes of the source have no names, and stay
}

// rewrite makes a shard without the content of some of its samples. Blocks without such samples are
// copied as they are stored.
type rewrite struct {
	of *rewriting
	shardTodo
	was   *metadata.ShardEntry
	name  string               // of the new shard
	index *metadata.ShardIndex // of the old shard; write changes it
	keys  []string             // the new keys of the samples to clear

	from   objstore.Object
	ahead  []byte // stored bytes that were read, from offset at on
	at     int64
	buf    []byte
	out    *openShard
	rows   []format.Row
	hashes [2]metadata.ShardHasher // of the blocks before and after
	dec    *codec.Decoder
	enc    *codec.Encoder
	block  tarblock.Builder
}

// load reads the index of the old shard, and settles the new keys and the new name.
func (r *rewrite) load(ctx context.Context) error {
	ix, err := loadEntry(ctx, r.of.store, r.was)
	if err != nil {
		return err
	}
	r.index = ix
	r.clear = slices.DeleteFunc(r.clear, func(s int) bool { return gone(r.of.purged, r.first+uint64(s)) && !r.has(s) })
	r.keys = purgedKeys(&ix.Keys, r.first, r.clear)
	r.name = r.newName()
	return nil
}

// purgedKeys returns the keys that samples of a shard get when they are purged. first is the number
// of the shard's first sample.
func purgedKeys(keys *metadata.KeyColumn, first uint64, clear []int) (fresh []string) {
	if len(clear) == 0 {
		return nil
	}
	taken := make(map[string]bool, keys.Len())
	for _, k := range keys.All() {
		taken[k] = true
	}
	for _, s := range clear {
		key := fmt.Sprint(purgedKey, first+uint64(s))
		for i := 1; taken[key]; i++ { // somebody's own key
			key = fmt.Sprintf("%s%d-%d", purgedKey, first+uint64(s), i)
		}
		fresh = append(fresh, key)
	}
	return fresh
}

// purgedKey begins the key of a purged sample, which ends with its number.
const purgedKey = "removed-sample/"

// has reports whether a sample has a value of an attribute to clear.
func (r *rewrite) has(sample int) bool {
	return slices.ContainsFunc(r.index.Attrs, func(a metadata.AttrColumn) bool {
		_, ok := a.At(sample)
		return ok && slices.Contains(r.of.attributes, a.Name)
	})
}

// rewritten matches the end of the names of rewritten shards, without their suffix.
var rewritten = regexp.MustCompile(`-x[0-9a-f]{16}$`)

// newName is a function of what the new shard is made of. So a purge that is repeated finds the
// shards that an interrupted one put, and no pack puts a shard of that name.
func (r *rewrite) newName() string {
	h := sha256.New()
	content := r.was.Content()
	fmt.Fprintf(h, "shardtool-purge-1\n%s\n%s\n%d %q %q\n", r.was.Name, content, r.clear, r.keys, r.of.attributes)
	suffix := format.ZstdSuffix
	if r.was.Plain() {
		suffix = format.TarSuffix
	}
	base := rewritten.ReplaceAllString(strings.TrimSuffix(r.was.Name, suffix), "")
	return base + "-x" + hex.EncodeToString(h.Sum(nil)[:8]) + suffix
}

// write puts the new shard, or finds it.
func (r *rewrite) write(ctx context.Context) (e *metadata.ShardEntry, err error) {
	if e, err = r.adopt(ctx); e != nil || err != nil {
		return e, err
	}
	if r.from, err = r.of.store.Open(ctx, r.was.Name); err != nil {
		return nil, err
	}
	defer r.from.Close()
	r.dec, r.enc = codec.NewDecoder(false), codec.NewEncoder(r.level())
	defer r.dec.Close()
	defer r.enc.Close()
	up, err := r.of.store.Create(ctx, r.name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return nil, err
	}
	r.out = newOpenShard(r.name, up)
	if err = r.blocks(ctx); err == nil {
		e, err = r.finish()
	}
	if err != nil {
		_ = r.out.abort() // the first failure is reported
		return nil, err
	}
	return e, r.of.puts.shard(ctx, r.out)
}

// adopt returns the new shard if an interrupted purge put it.
func (r *rewrite) adopt(ctx context.Context) (*metadata.ShardEntry, error) {
	ix, e, err := unfinished(ctx, r.of.store, r.name)
	if ix == nil || err != nil {
		return nil, err
	}
	if e.Samples != r.was.Samples || e.Blocks != r.was.Blocks || ix.Meta["purged"] == "" {
		return nil, fmt.Errorf("%w: %s is not what a purge of this shard makes: remove it, and purge again",
			format.ErrMismatch, r.name)
	}
	return r.entry(e), nil
}

// entry is the new shard in the tables: it keeps the identity that it was packed with.
func (r *rewrite) entry(e metadata.ShardEntry) *metadata.ShardEntry {
	e.Hash, e.Purged = r.was.Hash, e.Hash
	return &e
}

// level is the level of compression that the shard was packed with.
func (r *rewrite) level() codec.Level {
	var options struct {
		Level string `json:"level"`
	}
	_ = json.Unmarshal([]byte(r.index.Meta["options"]), &options) // notes decide no more than the level
	level, err := codec.ParseLevel(options.Level)
	if err != nil {
		return codec.LevelDefault
	}
	return level
}

// blocks copies the blocks that have no samples to clear, and clears the others.
func (r *rewrite) blocks(ctx context.Context) error {
	rows, first := r.was.Rows, 0
	for number := 0; len(rows) > 0; number++ {
		n := 1
		for n < len(rows) && rows[n].Samples == 0 {
			n++
		}
		samples := int(rows[0].Samples)
		from, _ := slices.BinarySearch(r.clear, first)
		to, _ := slices.BinarySearch(r.clear, first+samples)
		var err error
		if from == to {
			err = r.copy(ctx, rows[:n])
		} else {
			err = r.clearBlock(ctx, rows[:n], first)
		}
		if err != nil {
			return format.Place{Shard: r.was.Name, Block: number, Offset: -1}.Wrap(err)
		}
		rows, first = rows[n:], first+samples
	}
	r.hashes[0].AddKeys(r.was.Layout, r.was.Numbered)
	if r.hashes[0].Sum() != r.was.Content() {
		return fmt.Errorf("%w: the blocks' identity is not the one in the tables: their bytes are not the packed ones; restore the shard from a copy",
			format.ErrMismatch)
	}
	return nil
}

// copy writes the rows of a block as they are stored.
func (r *rewrite) copy(ctx context.Context, rows []format.Row) error {
	sum := sha256.New()
	for _, row := range rows {
		stored, err := r.stored(ctx, row)
		if err == nil {
			r.buf, err = r.dec.Decode(r.buf[:0], stored, row)
		}
		if err != nil {
			return err
		}
		sum.Write(r.buf)
		if err := r.out.frame(&frame{pieces: [][]byte{stored}}, &buffers{}); err != nil {
			return err
		}
		r.rows = append(r.rows, row)
	}
	for i := range r.hashes {
		r.hashes[i].Add(format.Hash(sum.Sum(nil)))
	}
	return nil
}

// stored reads the stored bytes of the next row, and checks them.
func (r *rewrite) stored(ctx context.Context, row format.Row) ([]byte, error) {
	const step = 8 << 20 // each read of a remote store is a request
	if n := int64(row.Stored); n > int64(len(r.ahead)) {
		end := int64(0)
		for _, w := range r.was.Rows {
			end += int64(w.Stored)
		}
		r.ahead = make([]byte, min(max(n, step), end-r.at))
		if err := r.from.ReadAt(ctx, r.ahead, r.at); err != nil {
			return nil, err
		}
	}
	p := r.ahead[:row.Stored]
	r.ahead, r.at = r.ahead[row.Stored:], r.at+int64(row.Stored)
	return p, codec.CheckFrame(p, row)
}

// clearBlock makes a block without the content of its samples to clear.
func (r *rewrite) clearBlock(ctx context.Context, rows []format.Row, first int) error {
	size := int64(0)
	for _, row := range rows {
		size += int64(codec.DecodeRoom(row))
	}
	if size > r.of.memory {
		return fmt.Errorf("%w: the block has %d bytes, and %d may be held in memory", format.ErrTooLarge, size,
			r.of.memory)
	}
	r.buf = slices.Grow(r.buf[:0], int(size))
	for _, row := range rows {
		stored, err := r.stored(ctx, row)
		if err == nil {
			r.buf, err = r.dec.Decode(r.buf, stored, row)
		}
		if err != nil {
			return err
		}
	}
	r.hashes[0].Add(format.BlockHash(r.buf))
	r.block.Reset()
	var err error
	if r.was.Layout != nil {
		err = r.clearRows(int(rows[0].Samples), first)
	} else {
		err = r.block.ClearBlock(r.buf, func(i int) (string, bool) {
			at, ok := slices.BinarySearch(r.clear, first+i)
			if !ok {
				return "", false
			}
			return r.keys[at], true
		})
	}
	if err != nil {
		return err
	}
	r.hashes[1].Add(format.BlockHash(r.block.Buf))
	return r.frames(rows[0].Samples)
}

// clearRows makes a block of rows without the content of its samples to clear.
func (r *rewrite) clearRows(n, first int) error {
	var was stacked.Block
	if err := stacked.OpenBlock(&was, r.buf, r.was.Layout, uint64(first), n, r.was.Numbered != nil); err != nil {
		return err
	}
	cleared := func(i int) (place int, ok bool) { return slices.BinarySearch(r.clear, first+i) }
	width := 0
	if r.was.Numbered == nil {
		for i := range n {
			if at, ok := cleared(i); ok {
				width = max(width, len(r.keys[at]))
			} else {
				width = max(width, len(was.Key(i)))
			}
		}
	}
	b, cuts, payloads := stacked.NewBlock(r.block.Buf, r.was.Layout, uint64(first), n, width)
	if len(b.Buf) > format.MaxFrame {
		return fmt.Errorf("%w: with the new keys the block has %d bytes, at most %d", format.ErrTooLarge, len(b.Buf),
			int64(format.MaxFrame))
	}
	for i := range n {
		at, clearIt := cleared(i)
		for f := range r.was.Layout.Fields {
			if clearIt {
				clear(b.Row(f, i))
			} else {
				copy(b.Row(f, i), was.Row(f, i))
			}
		}
		switch {
		case width == 0:
		case clearIt:
			b.SetKey(i, r.keys[at])
		default:
			b.SetKey(i, string(was.Key(i)))
		}
	}
	r.block = tarblock.Builder{Buf: b.Buf, Cuts: cuts, Payloads: payloads}
	return nil
}

// frames writes the block that was made.
func (r *rewrite) frames(samples uint32) error {
	enc := encoder{plain: r.was.Plain(), enc: r.enc, pool: &buffers{}}
	src, cuts, payloads := r.block.Buf, r.block.Cuts, r.block.Payloads
	if len(src) > format.MaxFrame { // the offsets are those in the block
		cuts, payloads = nil, nil
	}
	for len(src) > 0 {
		n := min(len(src), format.MaxFrame)
		f, err := enc.encode(src[:n], cuts, payloads)
		if err == nil {
			err = r.out.frame(&f, enc.pool)
		}
		if err != nil {
			return err
		}
		f.row.Samples, samples = samples, 0
		r.rows = append(r.rows, f.row)
		src = src[n:]
	}
	return nil
}

// finish writes the end of the archive and the index.
func (r *rewrite) finish() (*metadata.ShardEntry, error) {
	ix := r.index
	ix.ClearSamples(r.clear, r.keys, r.of.attributes)
	r.hashes[1].AddKeys(ix.Layout, ix.Keys.Ranges())
	content := r.hashes[1].Sum()
	ix.Rows, ix.Meta = r.rows, maps.Clone(ix.Meta)
	for _, note := range []string{"source", "cursor_start", "cursor_end"} { // of no use any more, and may hold names
		if !r.of.cursors {
			delete(ix.Meta, note)
		}
	}
	ix.Meta["content"], ix.Meta["packed"], ix.Meta["purged"] = content.String(), r.was.Hash.String(),
		fmt.Sprint(len(r.clear))
	e, err := r.out.finish(ix, content, r.was.Plain())
	return r.entry(e), err
}

// shardTodo is a shard to rewrite: its number, its first sample, and the samples to clear, by their
// numbers in the shard.
type shardTodo struct {
	number int
	first  uint64
	clear  []int
}
