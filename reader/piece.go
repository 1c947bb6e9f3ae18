package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
)

// pieceBlocks is the most blocks that are fetched, decoded and held together: a run, or a part of one.
const pieceBlocks = 8

// pieceID names a piece: blocks [number*size, (number+1)*size) of a shard, where size is the stream's.
type pieceID struct{ shard, number int }

// piece is consecutive blocks of a shard that are in memory together, or are to be. Its counters are guarded by
// Stream.mu; what a worker fills in is read after done is closed.
type piece struct {
	id    pieceID
	job   job
	plan  plan
	first int   // number in the shard of its first block
	count int   // blocks

	pins    int  // batches that use it and are not released
	open    int  // slots that may still draw from it
	here    bool // it has its share of the budget: fetched, or being fetched
	mark    uint64
	markUse int32
	at      int // in Stream.resident

	done    chan struct{}
	buf     []byte
	mapped  *handle // holds the mapping that buf is part of
	blocks  []pieceBlock
	samples []Sample
	fields  []format.FieldView
	results []result
}

// pieceBlock is a decoded block: where its samples are, or what is wrong with it.
type pieceBlock struct {
	samples int // index of its first one
	count   int
	err     error
}

// sample returns a ref's sample.
func (p *piece) sample(r *order.Ref) (*Sample, error) {
	b := &p.blocks[int(r.Block)-p.first]
	if b.err != nil {
		return nil, b.err
	}
	if int(r.Index) >= b.count || p.samples[b.samples+int(r.Index)].Number != r.Number {
		return nil, format.Position(fmt.Errorf("%w: sample %d of block %d is not number %d", format.ErrMismatch, r.Index, r.Block, r.Number),
			p.job.shard.Name, int(r.Block)-p.first+p.job.block, -1, "")
	}
	return &p.samples[b.samples+int(r.Index)], nil
}

// fetch fills the piece: read, checked, decoded, its samples found. Damage is believed when a second read, by a new handle,
// finds it again.
func (p *piece) fetch(ctx context.Context, s *Stream, st *stage) {
	p.results = p.results[:0]
	if p.mapped != nil {
		p.results = st.mapped(&p.job, p.buf, p.results)
	} else {
		p.results = st.run(ctx, &p.job, p.plan, p.buf, p.results)
	}
	for i := range p.results {
		if err := p.results[i].err; err != nil && isDamage(err) && ctx.Err() == nil {
			s.stats.rereads.Add(1)
			s.d.objects.forget(p.job.shard.Name)
			if p.mapped != nil { // read, not mapped, this time; the mapping itself stays until the piece goes
				p.buf = make([]byte, p.plan.size)
			}
			p.results = st.run(ctx, &p.job, p.plan, p.buf, p.results[:0])
			break
		}
	}
	p.blocks, p.samples, p.fields = p.blocks[:0], p.samples[:0], p.fields[:0]
	at := 0
	for i := 0; i < len(p.results); {
		j := i + 1 // the rows of one block
		for j < len(p.results) && p.results[j].Samples == 0 {
			j++
		}
		p.blocks = append(p.blocks, p.index(p.results[i:j], &at))
		i = j
	}
	if len(p.blocks) != p.count { // an object that cannot be opened is one result for all
		err := errors.New("reader: no result")
		if len(p.results) > 0 && p.results[0].err != nil {
			err = p.results[0].err
		}
		p.blocks = p.blocks[:0]
		for range p.count {
			p.blocks = append(p.blocks, pieceBlock{err: err})
		}
	}
	s.stats.blocks.Add(uint64(p.count))
	s.stats.stored.Add(uint64(p.plan.stored))
}

// mapped checks rows that are mapped into memory.
func (s *stage) mapped(j *job, stored []byte, out []result) []result {
	f := Frame{Shard: j.shard.number, Block: j.block, Offset: j.offset, FirstSample: j.first, shard: j.shard}
	for i := j.from; i < j.to; i++ {
		row := j.shard.rows[i]
		if i > j.from && row.Samples > 0 {
			f.FirstSample += uint64(blockSamples(j.shard.rows, i-1))
			f.Block++
		}
		res := result{Frame: f}
		res.Row, res.Samples, res.Stored, res.Decoded = i, int(row.Samples), int(row.Stored), stored[:row.Stored:row.Stored]
		if !s.d.opts.Unverified {
			res.err = format.Position(format.CheckFrame(res.Decoded, row), j.shard.Name, f.Block, f.Offset, "")
		}
		out = append(out, res)
		stored = stored[row.Stored:]
		f.Offset += int64(row.Stored)
	}
	return out
}

// mapPiece maps a piece of a plain shard, where that can be done; otherwise it is read like any other.
func (s *Stream) mapPiece(ctx context.Context, p *piece) {
	s.mu.Lock()
	need := !p.here && p.mapped == nil && p.pins > 0
	s.mu.Unlock()
	if !need {
		return
	}
	h, err := s.d.shardObject(ctx, p.job.shard.Name, p.job.shard.Size)
	if err != nil {
		return // fetch meets the same error, and places it
	}
	if m, ok := h.Object.(objstore.Mapper); ok {
		if all, err := m.Map(); err == nil && p.job.offset+int64(p.plan.stored) <= int64(len(all)) {
			s.mu.Lock()
			p.mapped, p.buf = h, all[p.job.offset:][:p.plan.stored:p.plan.stored]
			s.mu.Unlock()
			return
		}
	}
	s.d.objects.release(h)
}

// index finds the samples of one block, whose frames lie one after the other in buf from at on.
func (p *piece) index(rows []result, at *int) (b pieceBlock) {
	head := &rows[0]
	size := 0
	for i := range rows {
		size += int(head.shard.rows[rows[i].Row].Decoded)
	}
	from := *at
	*at += size
	for i := range rows {
		if rows[i].err != nil {
			return pieceBlock{err: rows[i].err}
		}
	}
	decoded := p.buf[from : from+size : from+size]
	b.samples = len(p.samples)
	it := format.SampleIter{Walker: format.Walker{Buf: decoded}}
	for it.Next() {
		at := len(p.fields)
		p.fields = append(p.fields, it.Fields...)
		p.samples = append(p.samples, Sample{
			Number: head.FirstSample + uint64(b.count), Key: it.Key, Fields: p.fields[at:len(p.fields):len(p.fields)],
		})
		b.count++
	}
	err := it.Err()
	if err == nil && b.count != head.Samples {
		err = fmt.Errorf("%w: %d samples, the tables say %d", format.ErrCorrupt, b.count, head.Samples)
	}
	if err != nil {
		p.samples = p.samples[:b.samples]
		return pieceBlock{err: format.Position(err, head.shard.Name, head.Block, head.Offset, "")}
	}
	return b
}

// confirmed says whether an error is proven damage of stored bytes: no failure of the store, no replaced object.
func confirmed(err error) bool { return isDamage(err) && !errors.Is(err, objstore.ErrChanged) }
