package writer

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/internal/extsort"
)

// emitter takes blocks in order and streams shards. It runs in one goroutine; what it has collected is read after the
// pipeline has ended.
type emitter struct {
	w    *Writer
	pool *buffers
	keys *extsort.Sorter // (key hash, sample number) of this generation's own samples

	shard   *openShard
	opened  int // shards begun, adopted ones included
	put     *putter
	entries []format.ShardEntry
	fields  map[string]*format.FieldTotal
	attrs   map[string]format.AttrKind
	prog    Progress
	lists   quarantine
	numbers uint64 // samples before the next one, those of the generation appended to included
}

func newEmitter(w *Writer, pool *buffers) *emitter {
	e := &emitter{w: w, pool: pool, fields: map[string]*format.FieldTotal{}, attrs: map[string]format.AttrKind{}}
	e.lists.dir = w.opt.TempDir
	e.keys = extsort.New(w.opt.TempDir, min(64<<20, w.opt.Memory/4))
	if base := w.base(); base != nil {
		for _, f := range base.Fields {
			e.fields[f.Name] = &f
		}
		for _, a := range base.Attributes {
			e.attrs[a.Name] = a.Kind
		}
		e.numbers = sumSamples(base.Shards)
	}
	return e
}

// run ends when order is closed; after a failure it only drains.
func (e *emitter) run() {
	for b := range e.w.order {
		if e.w.ctx.Err() == nil {
			if err := e.block(b); err != nil {
				e.w.fail(err)
			}
		}
		if b.adopt == nil {
			for range b.frames { // lets a worker that is still at it come to its end
			}
		}
		e.w.budget.give(b.taken)
		e.w.pace.end()
		b.shrink(e.w.opt.BlockSize)
		select {
		case e.w.free <- b:
		default:
		}
	}
	e.put.wait()
}

// close frees what run collected.
func (e *emitter) close() {
	if e.shard != nil {
		_ = e.shard.abort() // what is left is one more for a sweep
	}
}

func (e *emitter) block(b *block) error {
	if b.adopt != nil {
		return e.adopt(b.adopt)
	}
	if err := e.open(); err != nil {
		return err
	}
	kept := uint32(0)
	rows := []format.Row{}
	for f := range b.frames {
		if err := e.shard.write(f.stored); err != nil {
			return format.Position(err, e.shard.name, e.shard.blocks, e.shard.size, "")
		}
		rows = append(rows, f.row)
		e.pool.put(f.stored)
	}
	if b.err != nil {
		return b.err
	}
	left := b.left
	for i := range b.samples {
		s := &b.samples[i]
		for ; len(left) > 0 && left[0].before <= i; left = left[1:] {
			e.shard.list.add(left[0].line)
		}
		if s.dropped != nil {
			e.shard.skipped++
			e.shard.list.add(skippedLine(s.dropped))
			continue
		}
		kept++
		if err := e.shard.index.AddSample(s.key, s.fields, s.attrs); err != nil {
			return s.failed(err)
		}
		if err := e.sample(s.key, s.fields, s.attrs); err != nil {
			return s.failed(err)
		}
		e.shard.key(s.key)
	}
	if len(rows) > 0 {
		rows[0].Samples = kept
		for _, r := range rows {
			e.shard.index.AddRow(r)
		}
		e.shard.hasher.Add(b.hash)
		e.shard.blocks++
		e.prog.Blocks++
	}
	for _, l := range left {
		e.shard.list.add(l.line)
	}
	e.shard.list.more += b.unlisted
	e.shard.samples += uint64(kept)
	if b.end != nil {
		if err := e.finish(b.end); err != nil {
			return err
		}
	}
	e.report()
	return nil
}

// sample counts one sample into totals and keys.
func (e *emitter) sample(key string, fields []format.FieldSize, attrs []format.AttrValue) error {
	for _, f := range fields {
		e.count(f.Name, uint64(f.Size))
	}
	for _, a := range attrs {
		if err := e.attribute(a.Attribute); err != nil {
			return err
		}
	}
	return e.number(key)
}

func (e *emitter) count(field string, size uint64) {
	t := e.fields[field]
	if t == nil {
		t = &format.FieldTotal{Name: field, Min: size}
		e.fields[field] = t
	}
	t.Samples++
	t.Bytes += size
	t.Min, t.Max = min(t.Min, size), max(t.Max, size)
	e.prog.PayloadBytes += int64(size)
}

func (e *emitter) attribute(a format.Attribute) error {
	err := sameKind(e.attrs, a)
	if err == nil {
		e.attrs[a.Name] = a.Kind
	}
	return err
}

// number gives a key the next sample number.
func (e *emitter) number(key string) error {
	var rec [16]byte
	binary.BigEndian.PutUint64(rec[:], format.KeyHash(key))
	binary.BigEndian.PutUint64(rec[8:], e.numbers)
	e.numbers++
	e.prog.Samples++
	return e.keys.Add(rec[:])
}

// open begins the next shard's object.
func (e *emitter) open() error {
	if e.shard != nil {
		return nil
	}
	name := e.w.shardName(e.opened)
	e.opened++
	up, err := e.w.store.Create(e.w.ctx, name, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		return err
	}
	e.shard = newOpenShard(name, up)
	return nil
}

// finish ends the open shard and hands it to the putter. A shard without samples (all of them were skipped) is dropped.
func (e *emitter) finish(end *shardEnd) error {
	s := e.shard
	e.shard = nil
	list := s.list.text()
	if err := e.lists.add(list); err != nil {
		_ = s.abort() // the first failure is the one to report
		return err
	}
	if s.samples == 0 {
		return s.abort()
	}
	end.skipped += s.skipped
	hash := s.hasher.Sum()
	ix := s.index.Finish(e.shardMeta(hash, end))
	ix.Skipped = list
	err := s.write(format.EndOfArchive(e.w.opt.Plain))
	var tail []byte
	if err == nil {
		tail, err = format.AppendTail(nil, ix, e.w.opt.Plain)
	}
	if e.w.opt.Plain {
		s.sidecar = tail
	} else if err == nil {
		err = s.write(tail)
	}
	if err != nil {
		_ = s.abort() // the first failure is the one to report
		return format.Position(err, s.name, -1, s.size, "")
	}
	e.entries = append(e.entries, format.ShardEntry{
		ShardInfo: format.ShardInfo{
			Name: s.name, Size: uint64(s.size), Tail: uint64(len(tail)), Samples: s.samples, Blocks: uint64(s.blocks),
			Rows: uint64(len(ix.Rows)), Hash: hash, Index: format.HashIndex(tail), FirstKey: s.first, LastKey: s.last,
		},
		Rows: ix.Rows,
	})
	e.prog.Shards++
	e.prog.StoredBytes += s.size + int64(len(s.sidecar))
	return e.put.send(e.w.ctx, s)
}

// shardMeta is the provenance of a shard (SPEC 4.6).
func (e *emitter) shardMeta(hash format.Hash, end *shardEnd) format.Metadata {
	m := format.Metadata{"tool": toolVersion(), "options": e.w.opt.canonical(), "content": hash.String()}
	if e.w.fingerprint != "" {
		m["source"], m["cursor_start"], m["cursor_end"] = e.w.fingerprint, end.cursorStart, end.cursorEnd
	}
	setSkipped(m, end.skipped)
	return m
}

// setSkipped notes how many samples were left out, so that a run that takes the shard over knows it, too.
func setSkipped(m format.Metadata, n int64) {
	if n > 0 {
		m["skipped"] = strconv.FormatInt(n, 10)
	}
}

func sumSamples(shards []format.ShardEntry) (n uint64) {
	for i := range shards {
		n += shards[i].Samples
	}
	return n
}

func (e *emitter) report() {
	if e.w.opt.Progress != nil {
		p := e.prog
		if e.shard != nil {
			p.StoredBytes += e.shard.size
		}
		e.w.opt.Progress(p)
	}
}

// wait for ctx or the channel: used by stages that hand work on.
func sendTo[T any](ctx context.Context, ch chan<- T, v T) error {
	select {
	case ch <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
