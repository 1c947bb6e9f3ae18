package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
)

// pieceBlocks is the most blocks that are fetched, decoded and held together: a run, or a part of one.
const pieceBlocks = 8

// pieceID names a piece: blocks [number*size, (number+1)*size) of a shard, where size is the stream's.
type pieceID struct{ shard, number int }

// piece is consecutive blocks of a shard that are in memory together, or are to be. Stream.mu guards its counters. What a
// worker fills in is read once landed is set.
type piece struct {
	id    pieceID
	job   job
	plan  plan
	first int // number in the data set of its first block
	count int // blocks

	pins    int    // batches that use it and are not released
	open    int    // slots that may still draw from it
	here    bool   // it has its memory: fetched, or being fetched
	at      int    // in Stream.resident
	mark    uint64 // the batch that found it last, and where in its uses
	markUse int32

	landed    atomic.Bool
	doing     atomic.Int32 // doing
	phases    [objstore.Phases]atomic.Int32
	evicted   atomic.Bool // it had to go, and comes again
	broughtBy uint64      // the batch that asked for it
	slots     int         // the planner's: slots that are open at the batch at hand
	live      bool        // and: brought while they were

	buf []byte
	*sampleTable
}

// sampleTable says where the samples of a piece are. It has no pointers into the blocks, and takes a few bytes a sample: there are
// as many of them in memory as the order keeps live.
type sampleTable struct {
	blocks  []pieceBlock
	starts  []uint32 // of each sample: its first member; and of each block, where the last one's end
	members []member
	names   [][]byte // the long ones
}

// pieceBlock is a decoded block, or what is wrong with it.
type pieceBlock struct {
	data   []byte
	number uint64 // of its first sample
	from   int    // in starts
	count  int    // samples
	err    error
}

// member is a field of a sample.
type member struct {
	payload, size int64 // in the block
	long          int32 // 1 + its name's place in names; 0: the name is where the header begins, 512 bytes before the payload
	name, key     uint16
}

// sample appends the fields of a ref's sample, which are slices of the block, and returns its key.
func (p *piece) sample(r *order.Ref, fields []format.FieldView) (key []byte, _ []format.FieldView, err error) {
	b := &p.blocks[int(r.Block)-p.first]
	if b.err != nil {
		return nil, fields, b.err
	}
	if int(r.Index) >= b.count || b.number+uint64(r.Index) != r.Number {
		err := fmt.Errorf("%w: sample %d of the block is not number %d", format.ErrMismatch, r.Index, r.Number)
		return nil, fields, format.Position(err, p.job.shard.Name, p.job.block+int(r.Block)-p.first, -1, "")
	}
	i := b.from + int(r.Index)
	members := p.members[p.starts[i]:p.starts[i+1]]
	for j := range members {
		m := &members[j]
		var name []byte
		if m.long == 0 {
			at := m.payload - 512
			name = b.data[at : at+int64(m.name) : at+int64(m.name)]
		} else {
			name = p.names[m.long-1]
		}
		key = name[:m.key:m.key]
		fields = append(fields, format.FieldView{Name: name[min(m.key+1, m.name):], Data: b.data[m.payload : m.payload+m.size : m.payload+m.size]})
	}
	return key, fields, nil
}

// fetch fills the piece: read, checked, decoded, its samples found. The results are only scratch.
func (p *piece) fetch(ctx context.Context, s *Stream, st *stage, results []result) []result {
	results = st.run(ctx, &p.job, p.plan, p.buf, results[:0])
	rest := p.buf
	for i := 0; i < len(results); {
		j, size := i, 0
		for ok := true; ok; ok = j < len(results) && results[j].Samples == 0 { // the rows of one block
			size += int(p.job.shard.rows[results[j].Row].Decoded)
			j++
		}
		p.blocks = append(p.blocks, p.index(results[i:j], rest[:size:size]))
		rest = rest[size:]
		i = j
	}
	if len(p.blocks) != p.count { // an object that cannot be opened is one result for all
		err := errors.New("reader: no result")
		if len(results) > 0 && results[0].err != nil {
			err = results[0].err
		}
		p.blocks = p.blocks[:0]
		for range p.count {
			p.blocks = append(p.blocks, pieceBlock{err: err})
		}
	}
	s.stats.blocks.Add(uint64(p.count))
	s.stats.stored.Add(uint64(p.plan.stored))
	return results
}

// index finds the samples of one block, whose rows lie one after the other.
func (p *piece) index(rows []result, decoded []byte) pieceBlock {
	head := &rows[0]
	for i := range rows {
		if rows[i].err != nil {
			return pieceBlock{err: rows[i].err}
		}
	}
	b := pieceBlock{data: decoded, number: head.FirstSample, from: len(p.starts)}
	room := min(head.Samples, len(decoded)/512) + 1
	p.starts, p.members = slices.Grow(p.starts, room), slices.Grow(p.members, room)
	foreign := head.shard.Foreign
	walk := format.Walker{Buf: decoded, Foreign: foreign}
	var m format.Member
	var last []byte // key
	for {
		ok, err := walk.Next(&m)
		if err == nil && ok && len(m.Name) > format.MaxName {
			err = fmt.Errorf("%w: a name of %d bytes", format.ErrCorrupt, len(m.Name))
		}
		if err == nil && !ok && b.count != head.Samples {
			err = fmt.Errorf("%w: %d samples, the tables say %d", format.ErrCorrupt, b.count, head.Samples)
		}
		if err != nil {
			return pieceBlock{err: format.Position(inBlock(err), head.shard.Name, head.Block, head.Offset, "")}
		}
		if !ok {
			p.sortLast(b.count, foreign)
			p.starts = append(p.starts, uint32(len(p.members)))
			return b
		}
		key, _ := format.SplitName(m.Name)
		if b.count == 0 || !bytes.Equal(key, last) {
			p.sortLast(b.count, foreign)
			p.starts = append(p.starts, uint32(len(p.members)))
			b.count++
			last = key
		}
		f := member{payload: m.Payload, size: m.Size, name: uint16(len(m.Name)), key: uint16(len(key))}
		if foreign || len(m.Name) > 0 && &m.Name[0] != &decoded[m.Payload-512] {
			p.names = append(p.names, m.Name)
			f.long = int32(len(p.names))
		}
		p.members = append(p.members, f)
	}
}

// sortLast puts the members of the last sample so far in the order of their fields, where another tool may have left them in any.
func (p *sampleTable) sortLast(samples int, foreign bool) {
	if !foreign || samples == 0 {
		return
	}
	members := p.members[p.starts[len(p.starts)-1]:]
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(p.names[a.long-1], p.names[b.long-1]) })
}
