package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
)

// slot is a span of the order that is open: its pieces stay while there is room.
type slot struct {
	first  int // global number of the first block of pieces[0]
	pieces []*piece
}

// planner is the state of the goroutine that runs ahead.
type planner struct {
	s      *Stream
	slots  map[uint64]*slot
	seq    uint64 // of the batch at hand
	shards map[int]*shard
	uses   []*piece // of the batch at hand
	copied bool     // it is to be copied
}

// planAhead plans batches, asks for their pieces in order of first use, and ends with the order.
func (s *Stream) planAhead(ctx context.Context) {
	defer close(s.planned)
	defer close(s.fetches)
	p := &planner{s: s, slots: map[uint64]*slot{}, shards: map[int]*shard{}}
	for {
		b := s.newBatch()
		more, err := p.batch(ctx, b)
		if !more && err == nil {
			return
		}
		b.err = err
		// The batch is the assembler's from here on, and the consumer may release it before this loop has gone over it.
		p.uses, p.copied = append(p.uses[:0], b.uses...), b.copied
		select {
		case s.planned <- b: // first: the assembler must see the batch while its pieces are being fetched
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		for _, piece := range p.uses {
			if err := p.bring(ctx, piece); err != nil {
				return // ctx has ended
			}
		}
	}
}

// batch plans the next batch. more is false behind the last one.
func (p *planner) batch(ctx context.Context, b *Batch) (more bool, err error) {
	s := p.s
	refs, info, err := s.cursor.NextBatch(b.refs[:0], s.split)
	b.refs = refs
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.Epoch, b.Position, b.NextEpoch, b.NextPosition = info.Epoch, info.Position, info.NextEpoch, info.NextPosition
	b.Global, b.First = info.Global, info.First
	for i := range info.Opened {
		if err := p.open(ctx, &info.Opened[i]); err != nil {
			return false, err
		}
	}
	p.use(b)
	for i := range info.Closed {
		id := info.Closed[i].Slot
		if sl := p.slots[id]; sl != nil {
			b.closing = append(b.closing, sl)
			delete(p.slots, id)
		}
	}
	return true, nil
}

// open makes the pieces of a span known.
func (p *planner) open(ctx context.Context, span *order.Span) error {
	s := p.s
	number := s.plan.ShardOf(span.Block)
	sh := p.shards[number]
	if sh == nil {
		var err error
		if sh, err = s.d.shard(ctx, number); err != nil {
			return err
		}
		if len(p.shards) >= 4096 {
			clear(p.shards)
		}
		p.shards[number] = sh
	}
	base := s.first[number]
	from := (int(span.Block) - base) / s.per
	to := (int(span.Block+span.Blocks-1) - base) / s.per
	sl := &slot{first: base + from*s.per}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := from; n <= to; n++ {
		id := pieceID{number, n}
		pc := s.pieces[id]
		if pc == nil {
			pc = s.newPiece(id, sh, base)
		}
		pc.open++
		sl.pieces = append(sl.pieces, pc)
	}
	p.slots[span.Slot] = sl
	return nil
}

// newPiece makes a piece known; s.mu is held.
func (s *Stream) newPiece(id pieceID, sh *shard, base int) *piece {
	var p *piece
	if n := len(s.idle); n > 0 {
		p = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		p = &piece{}
	}
	*p = piece{id: id, blocks: p.blocks, samples: p.samples, fields: p.fields, results: p.results}
	first := id.number * s.per
	p.count = min(s.per, int(sh.Blocks)-first)
	p.first = base + first
	p.job = sh.blockRange(first, p.count)
	p.plan = p.job.plan()
	s.pieces[id] = p
	return p
}

// blockRange is the job of consecutive blocks of a shard.
func (s *shard) blockRange(first, count int) job {
	j := job{shard: s, block: first, first: s.first}
	block := -1
	for i, r := range s.rows {
		if r.Samples > 0 {
			block++
		}
		if block == first+count {
			break
		}
		if block < first {
			j.offset += int64(r.Stored)
			j.first += uint64(r.Samples)
			j.from = i + 1
		}
		j.to = i + 1
	}
	return j
}

// use finds the pieces of a batch's refs and pins them.
func (p *planner) use(b *Batch) {
	s := p.s
	p.seq++
	total := int64(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b.refs {
		r := &b.refs[i]
		if r.Padding {
			b.use = append(b.use, -1)
			continue
		}
		sl := p.slots[r.Slot]
		pc := sl.pieces[(int(r.Block)-sl.first)/s.per]
		if pc.mark != p.seq {
			pc.mark, pc.markUse = p.seq, int32(len(b.uses))
			pc.pins++
			if pc.done == nil {
				pc.done = make(chan struct{})
			}
			b.uses = append(b.uses, pc)
			total += int64(pc.plan.size)
		}
		b.use = append(b.use, pc.markUse)
	}
	b.pinned = true
	s.coming++
	// A batch whose pieces would fill the budget has its samples copied, so that the pieces can go one by one: those that
	// are here first, which makes room for the others.
	if b.copied = total > s.buffers.limit/2; b.copied {
		slices.SortStableFunc(b.uses, func(x, y *piece) int { return absent(x) - absent(y) })
		for i, pc := range b.uses {
			pc.markUse = int32(i)
		}
		for i := range b.refs {
			if r := &b.refs[i]; !r.Padding {
				sl := p.slots[r.Slot]
				b.use[i] = sl.pieces[(int(r.Block)-sl.first)/s.per].markUse
			}
		}
	}
}

func absent(p *piece) int {
	if p.here {
		return 0
	}
	return 1
}

// bring gives a piece memory and has it fetched, unless it is there.
func (p *planner) bring(ctx context.Context, pc *piece) error {
	s := p.s
	if pc.job.shard.Plain() {
		s.mapPiece(ctx, pc)
	}
	for {
		s.mu.Lock()
		if pc.here || pc.pins == 0 {
			s.mu.Unlock()
			return nil
		}
		// Nobody else can give memory back when the consumer waits for this very batch. Until then, wait for it.
		last := s.waiting && s.coming == 1
		ok := pc.mapped != nil
		if !ok && (!p.copied || last) {
			pc.buf = s.buffers.try(pc.plan.size)
			ok = pc.buf != nil
		}
		if ok {
			pc.here, pc.at = true, len(s.resident)
			s.resident = append(s.resident, pc)
			s.mu.Unlock()
			select {
			case s.fetches <- pc:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		evicted := last && s.evict()
		stuck := last && !evicted && !p.copied && s.held > 0
		held := s.held
		s.mu.Unlock()
		if evicted {
			continue
		}
		if stuck {
			err := fmt.Errorf("reader: %w: the %d batches in hand fill the memory budget of %d bytes: release them, or raise the budget", ErrHeld, held, s.opts.Memory)
			s.cancel(err)
			return err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// evict takes the memory of a piece that no batch in hand uses; s.mu is held. Which one matters little: in a window every
// run is drawn from at nearly every tick.
func (s *Stream) evict() bool {
	for i := len(s.resident) - 1; i >= 0; i-- {
		if pc := s.resident[i]; pc.pins == 0 {
			s.stats.evicted.Add(uint64(pc.count))
			s.drop(pc)
			pc.done = nil
			return true
		}
	}
	return false
}

// drop gives a piece's memory back; s.mu is held.
func (s *Stream) drop(p *piece) {
	last := s.resident[len(s.resident)-1]
	s.resident[p.at], last.at = last, p.at
	s.resident = s.resident[:len(s.resident)-1]
	if p.mapped != nil {
		s.d.objects.release(p.mapped)
		p.mapped = nil
	} else {
		s.buffers.put(p.buf)
	}
	p.buf, p.here = nil, false
}

// letGo forgets a piece that nothing will draw from any more; s.mu is held.
func (s *Stream) letGo(p *piece) {
	if p.pins > 0 || p.open > 0 {
		return
	}
	if p.here {
		s.drop(p)
	}
	delete(s.pieces, p.id)
	if len(s.idle) < 256 {
		s.idle = append(s.idle, p)
	}
}

// unpin ends a batch's use of one piece.
func (s *Stream) unpin(p *piece) {
	s.mu.Lock()
	p.pins--
	s.letGo(p)
	s.mu.Unlock()
	s.nudge()
}

// release takes a delivered batch back.
func (s *Stream) release(b *Batch) {
	s.mu.Lock()
	if s.pieces == nil { // closed
		s.mu.Unlock()
		return
	}
	if b.pinned {
		for _, p := range b.uses {
			p.pins--
			s.letGo(p)
		}
	}
	for _, sl := range b.closing {
		for _, p := range sl.pieces {
			p.open--
			s.letGo(p)
		}
	}
	if b.copied {
		s.buffers.charge(-int64(cap(b.arena)))
	}
	s.held--
	s.batches = append(s.batches, b)
	s.mu.Unlock()
	s.nudge()
}

// newBatch takes an old batch's memory where there is one.
func (s *Stream) newBatch() *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.batches)
	if n == 0 {
		return &Batch{s: s}
	}
	b := s.batches[n-1]
	s.batches = s.batches[:n-1]
	old := *b
	*b = Batch{s: s, Samples: old.Samples[:0], refs: old.refs[:0], places: old.places[:0], arena: old.arena[:0], fields: old.fields[:0], uses: old.uses[:0], use: old.use[:0], closing: old.closing[:0]}
	return b
}
