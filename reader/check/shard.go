package check

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/sys/ahead"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// shardCheck is a shard on its way through a deep Verify. One of several goroutines reads its ends,
// and the one that gives out jobs takes them in; then each block's worker writes that block's hash,
// and the consumer does the rest.
type shardCheck struct {
	v    *verifier
	s    *fetch.Shard
	size int64 // of the object, -1 if it is not known
	// index is nil when it cannot be read; then contents are held against the tables alone.
	index   *metadata.ShardIndex
	cursors []metadata.FieldCursor // a block
	firsts  []int                  // first sample of each block, in the shard
	hashes  []format.Hash          // a block
	bad     bool                   // a block is wrong: then so is the hash of the shard

	// Of a block of several frames, whose bytes the consumer looks at in order.
	sum     hash.Hash
	content metadata.BlockChecker
}

// deep reads every byte of all shards.
func (v *verifier) deep(ctx context.Context) {
	var pool fetch.ScratchPool
	defer pool.Close()
	p := &fetch.Pipeline{
		Source: v.c.Source, Pool: &pool, Workers: v.o.Workers, Memory: v.o.Memory, KeepGoing: true, Check: v.checkBlock,
	}
	for u, err := range p.Run(ctx, v.jobs(ctx)) {
		if err != nil {
			if ctx.Err() == nil {
				v.fail(ctx, orderLast, KindRead, "", err)
			}
			break
		}
		c, read := v.check(u.Job.Shard), 0
		for i := range u.Results {
			c.take(ctx, &u.Results[i])
			read += u.Results[i].Stored
		}
		v.read(read)
		if u.Job.To == len(c.s.Rows) {
			v.shards.Delete(u.Job.Shard.Number)
			c.finish(ctx)
		}
		v.step(0)
	}
	if v.unindexed > 0 {
		v.note(fmt.Sprintf("the totals of fields and attributes and the keys table were not compared with the samples: the indexes of %d shards cannot be read", v.unindexed))
		return
	}
	if ctx.Err() == nil && v.complete {
		v.fieldTotals(ctx)
		v.attrTotals(ctx)
	}
}

// atOnce is how many shards' ends are read at once from a remote store. Each has an index in memory,
// with the keys of many samples.
const atOnce = 16

// jobs is storage order, with each shard's ends looked at before its blocks are read. It runs ahead
// of the workers, so that they need not wait for an index.
func (v *verifier) jobs(ctx context.Context) iter.Seq2[fetch.Job, error] {
	return func(yield func(fetch.Job, error) bool) {
		all := func(yield func(*fetch.Shard) bool) { v.complete = v.eachShard(ctx, yield) }
		ends := ahead.Each(ctx, all, min(v.c.Source.Requests(), atOnce), v.ends)
		for c := range ends {
			if c = v.begin(ctx, c); c != nil && !c.s.Jobs(false, yield) {
				return
			}
		}
	}
}

// ends reads all of a shard but its blocks. Several goroutines call it.
func (v *verifier) ends(ctx context.Context, s *fetch.Shard) *shardCheck {
	s.Object.Unchecked = true // what is there of an object of another size is read
	c := &shardCheck{v: v, s: s}
	var err error
	c.size, err = v.c.Source.CheckSize(ctx, s.Name, s.Size)
	v.fail(ctx, s.Number, KindRead, "", err)
	there := c.size >= 0
	if there && c.size >= int64(s.Size) {
		v.endOfArchive(ctx, s)
	}
	if there || s.Plain() {
		c.index = v.indexOf(ctx, s, c.size)
	}
	return c
}

// begin takes in what ends has read. It returns nil when none of the blocks can be read.
func (v *verifier) begin(ctx context.Context, c *shardCheck) *shardCheck {
	s, samples := c.s, 0
	for _, r := range s.Rows {
		if r.Samples > 0 {
			c.firsts = append(c.firsts, samples)
			samples += int(r.Samples)
		}
	}
	if c.index == nil {
		v.unindexed++
	} else {
		c.indexed(ctx)
	}
	if c.size < 0 {
		return nil
	}
	if c.size < int64(s.Size) {
		c.cut(c.size)
	}
	c.hashes = make([]format.Hash, len(c.firsts))
	if c.index != nil {
		c.cursors = c.index.Cursors(c.firsts)
	}
	if len(c.s.Rows) == 0 {
		c.finish(ctx)
		return nil
	}
	v.shards.Store(c.s.Number, c)
	return c
}

// cut leaves the whole blocks of an object that is too short.
func (c *shardCheck) cut(size int64) {
	s := *c.s
	end, whole := int64(0), 0
	for i, r := range s.Rows {
		if r.Samples > 0 {
			whole = i
		}
		if end += int64(r.Stored); end > size {
			s.Rows = s.Rows[:whole]
			break
		}
	}
	c.s, c.bad = &s, true
}

// maxForeignEnd bounds what is read of the end of a foreign archive.
const maxForeignEnd = 1 << 30

// endOfArchive compares what follows the last block.
func (v *verifier) endOfArchive(ctx context.Context, s *fetch.Shard) {
	want := metadata.EndOfArchive(s.Plain())
	off := int64(0)
	for _, r := range s.Rows {
		off += int64(r.Stored)
	}
	size := int64(len(want))
	if s.Foreign {
		size = int64(s.Size) - off
	}
	var err error
	if size > maxForeignEnd {
		err = &fetch.KindError{Kind: KindIndex, Err: fmt.Errorf("%w: %d bytes behind the last block", format.ErrCorrupt,
			size)}
	} else {
		err = v.c.Source.ReadRange(ctx, s.Name, 0, off, size, func(got []byte) error {
			v.read(len(got))
			switch {
			case s.Foreign:
				if err := tarblock.CheckForeignEnd(got); err != nil {
					return fetch.OfKind(KindChecksum, err)
				}
			case !bytes.Equal(got, want):
				return &fetch.KindError{Kind: KindChecksum,
					Err: fmt.Errorf("%w: the end of the archive has other bytes", format.ErrCorrupt)}
			}
			return nil
		})
	}
	v.fail(ctx, s.Number, KindRead, "", format.Place{Shard: s.Name, Block: -1, Offset: off}.Wrap(err))
}

// indexOf reads a shard's index and compares it with the tables. It returns nil when it cannot be
// read.
func (v *verifier) indexOf(ctx context.Context, s *fetch.Shard, size int64) *metadata.ShardIndex {
	if !s.Plain() && size < int64(s.Size) {
		return nil // cut off, and reported as that
	}
	name, _ := catalog.IndexObject(s.ShardInfo)
	if s.Plain() && !v.size(ctx, s.Number, name, s.Tail) {
		return nil
	}
	ix, n, err := v.c.ReadIndex(ctx, s, 0)
	v.read(n)
	if err != nil {
		v.fail(ctx, s.Number, KindIndex, "", err)
		return nil
	}
	return ix
}

// check returns the check of a shard whose blocks are being read.
func (v *verifier) check(s *fetch.Shard) *shardCheck {
	c, _ := v.shards.Load(s.Number)
	return c.(*shardCheck)
}

// checkBlock runs on the workers: the identity and the content of a block of one frame.
func (v *verifier) checkBlock(f *fetch.Result) error {
	if f.Samples == 0 || !f.Last {
		return nil
	}
	c := v.check(f.Shard)
	c.hashes[f.Block] = format.BlockHash(f.Decoded)
	if c.index == nil {
		return nil
	}
	k := metadata.NewBlockChecker(c.cursors[f.Block], f.Samples)
	err := k.Write(f.Decoded)
	if err == nil {
		err = k.End()
	}
	if err != nil {
		return format.Place{Shard: f.Shard.Name, Block: f.Block, Offset: f.Offset}.Wrap(fetch.OfKind(KindContent, err))
	}
	return nil
}

// take is the consumer's part for one frame.
func (c *shardCheck) take(ctx context.Context, r *fetch.Result) {
	switch {
	case r.Err != nil:
		c.fail(ctx, r, r.Err)
	case r.Samples == 0 || !r.Last:
		c.piece(ctx, r)
	default:
		c.count(r)
	}
}

// piece takes a frame of a block of several.
func (c *shardCheck) piece(ctx context.Context, r *fetch.Result) {
	if r.Samples > 0 {
		c.sum, c.content = sha256.New(), nil
		if c.index != nil {
			c.content = metadata.NewBlockChecker(c.cursors[r.Block], r.Samples)
		}
	}
	if c.sum == nil {
		return // an earlier frame of this block was bad
	}
	c.sum.Write(r.Decoded)
	if c.content != nil {
		err := c.content.Write(r.Decoded)
		if err == nil && r.Last {
			err = c.content.End()
		}
		if err != nil {
			c.fail(ctx, r, fetch.OfKind(KindContent, err))
			return
		}
	}
	if r.Last {
		c.sum.Sum(c.hashes[r.Block][:0])
		c.count(r)
	}
}

func (c *shardCheck) count(r *fetch.Result) {
	c.v.count(0, 1, uint64(c.s.SamplesOf(r.Row)))
}

// fail records a fault in a block, with the key of its first sample.
func (c *shardCheck) fail(ctx context.Context, r *fetch.Result, err error) {
	c.bad, c.sum = true, nil
	key := ""
	if c.index != nil && r.Block < len(c.firsts) {
		key = c.index.Keys.At(c.firsts[r.Block])
	}
	c.v.fail(ctx, c.s.Number, KindRead, key, format.Place{Shard: c.s.Name, Block: r.Block, Offset: r.Offset}.Wrap(err))
}

// finish compares the shard's identity, when all of its blocks are there.
func (c *shardCheck) finish(ctx context.Context) {
	c.v.step(1)
	if c.bad {
		return
	}
	c.v.count(1, 0, 0)
	var h metadata.ShardHasher
	for _, b := range c.hashes {
		h.Add(b)
	}
	h.AddKeys(c.s.Layout, c.s.Numbered)
	if got := h.Sum(); got != c.s.Content() {
		c.v.fail(ctx, c.s.Number, KindContent, "",
			format.InShard(c.s.Name, fmt.Errorf("%w: the blocks' identity is %v, the tables say %v: "+
				"their bytes agree with their checksums and are not those that were packed", format.ErrMismatch, got,
				c.s.Content())))
	}
}
