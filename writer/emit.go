package writer

import (
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// emitter takes blocks in order, writes them into shards and counts them into totals. It runs in
// one goroutine, except seal.
type emitter struct {
	plan *plan
	line *pipeline
	puts *puts
	sum  *totals

	pool   *buffers
	shard  *openShard
	opened int // shards begun, adopted ones included
	put    *putter
	// indexes is the number of bytes of sealed shards that are not blocks.
	indexes atomic.Int64
}

func newEmitter(plan *plan, line *pipeline, puts *puts, sum *totals) *emitter {
	e := &emitter{plan: plan, line: line, puts: puts, sum: sum}
	e.put = newPutter(line, puts, e.seal, plan.opt.Stored)
	return e
}

// run ends when order is closed; after a failure it only drains.
func (e *emitter) run() {
	for b := range e.line.order {
		if e.line.err() == nil {
			if err := e.block(b); err != nil {
				e.line.fail(err)
			}
		}
		if b.adopt == nil {
			for range b.frames { // a worker may still be sending
			}
		}
		e.line.done(b, e.plan.opt.BlockSize)
	}
	e.put.wait()
	if e.line.err() == nil {
		e.report() // with the index of the last shard
	}
}

// close aborts the shard that was being written, if any.
func (e *emitter) close() {
	if e.shard != nil {
		_ = e.shard.abort() // a failure leaves one more object for a sweep
	}
}

func (e *emitter) block(b *block) error {
	if b.adopt != nil {
		return e.adopt(b.adopt)
	}
	if err := e.open(); err != nil {
		return err
	}
	rows := []format.Row{}
	for f := range b.frames {
		if b.body.renumber(e.shard.samples) {
			var err error
			if f, err = e.again(b, f); err != nil {
				return err
			}
		}
		if err := e.shard.frame(&f, e.pool); err != nil {
			return err
		}
		rows = append(rows, f.row)
	}
	if b.err != nil {
		return b.err
	}
	kept, err := b.body.index(b, e.shard, e.sum)
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		rows[0].Samples = uint32(kept)
		for _, r := range rows {
			e.shard.index.AddRow(r)
		}
		e.shard.hasher.Add(b.hash)
		e.shard.blocks++
		e.sum.prog.Blocks++
	}
	e.shard.samples += uint64(kept)
	if b.end != nil {
		if err := e.finish(b.end); err != nil {
			return err
		}
	}
	e.report()
	return nil
}

// again packs a block whose only frame is not valid any more.
func (e *emitter) again(b *block, old frame) (f frame, err error) {
	e.pool.put(old.stored)
	enc := newEncoder(&e.plan.opt, e.pool)
	defer enc.enc.Close()
	err = b.body.pack(b, &packer{ctx: e.line.ctx, enc: enc, send: func(made frame) error { f = made; return nil }})
	return f, err
}

// open begins the object of the next shard, unless a shard is open.
func (e *emitter) open() error {
	if e.shard != nil {
		return nil
	}
	name := e.plan.shardName(e.opened)
	e.opened++
	up, err := e.puts.store.Create(e.line.ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	e.shard = newOpenShard(name, up)
	return nil
}

// finish ends the open shard and passes it to the putter, which seals it. A shard without samples
// (all of them were skipped) is dropped.
func (e *emitter) finish(end *shardEnd) error {
	s := e.shard
	e.shard = nil
	s.notes = s.list.text()
	if err := e.sum.lists.add(s.notes); err != nil {
		_ = s.abort() // the first failure is reported
		return err
	}
	if s.samples == 0 {
		return s.abort()
	}
	end.skipped += s.skipped
	s.end = end
	e.sum.prog.Shards++
	e.sum.prog.StoredBytes += s.size
	return e.put.send(s)
}

func (e *emitter) report() {
	if e.plan.opt.Progress != nil {
		p := e.sum.prog
		p.StoredBytes += e.indexes.Load()
		if e.shard != nil {
			p.StoredBytes += e.shard.size
		}
		e.plan.opt.Progress(p)
	}
}

// adopt counts a shard that is in the store.
func (e *emitter) adopt(a *adopted) error {
	ix := a.index
	e.opened++
	if err := e.sum.lists.add(ix.Skipped); err != nil {
		return err
	}
	for f := range ix.Sizes {
		if t := ix.Sizes[f].Total(ix.Fields[f]); t.Samples > 0 {
			e.sum.add(t)
			e.sum.prog.PayloadBytes += int64(t.Bytes)
		}
	}
	for i, at := range ix.Attributes {
		if err := e.sum.attribute(at); err != nil {
			return err
		}
		if sum := e.sum.valuesOf(at); sum != nil {
			sum.AddAll(&ix.Attrs[i])
		}
	}
	if err := e.sum.shardKeys(&ix.Keys); err != nil {
		return err
	}
	e.sum.prog.Samples += int64(ix.Keys.Len())
	e.sum.entries = append(e.sum.entries, a.entry)
	e.sum.prog.Adopted += int64(ix.Keys.Len())
	e.sum.prog.Blocks += int64(a.entry.Blocks)
	e.sum.prog.Shards++
	e.sum.prog.StoredBytes += int64(a.entry.Size)
	e.report()
	return nil
}

// seal completes a shard whose blocks are written: it numbers the samples, adds their keys to the
// keys table, and writes the index. The putter calls it for each shard in order, while the
// emitter writes the blocks of the next one: at 200 bytes a sample it takes as long as a third of
// them. Until the putter has ended, keys, numbers and entries of the totals belong to it; the
// emitter uses them for adopted shards alone, which precede all others.
func (e *emitter) seal(s *openShard) error {
	before := s.size
	ix := s.index.Finish(nil)
	// the blocks of a stacked shard decided
	if l := e.plan.opt.Layout; ix.Layout == nil && (l == LayoutStacked || l == LayoutAuto) {
		ix.NumberKeys()
	}
	if err := e.sum.shardKeys(&ix.Keys); err != nil {
		return format.InShard(s.name, err)
	}
	s.hasher.AddKeys(ix.Layout, ix.Keys.Ranges())
	hash := s.hasher.Sum()
	ix.Meta = e.plan.shardMeta(hash, s.end)
	ix.Skipped = s.notes
	entry, err := s.finish(ix, hash, e.plan.opt.Plain)
	if err != nil {
		return err
	}
	e.sum.entries = append(e.sum.entries, entry)
	e.indexes.Add(s.size - before + int64(len(s.sidecar)))
	return nil
}
