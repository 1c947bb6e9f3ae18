package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
)

// slot is a span of the order that is open: its pieces stay while there is room.
type slot struct {
	first  int // number in the data set of the first block of pieces[0]
	pieces []*piece
}

// draft is a batch as it was planned. Its memory is used again once the batch is released.
type draft struct {
	Batch   *Batch
	refs    []order.Ref
	uses    []*piece // pinned for it
	use     []int32  // of each ref: its piece in uses
	closing []*slot
	// copied: its samples are copied out of pieces one after the other, so that these need not be in memory together;
	// gathered is how many of them were. bytes is about what the samples take, copies what they have so far.
	copied        bool
	gathered      int
	bytes, copies int64
	err           error
	// For the accounts: its number, the samples and bytes that it delivers, and what was brought for it so far; the bytes of the
	// window before it, less its own share, and the most that they were before in the epoch.
	seq               uint64
	samples           int
	delivers, brought int64
	window, most      int64
}

// planner is the state of the goroutine that runs ahead.
type planner struct {
	s      *Stream
	slots  []*slot // by serial number from first on; nil where closed
	first  uint64
	seq    uint64 // of the batch at hand
	shards map[int]*shard
	uses   []*piece // of the batch at hand
	// The window: bytes of pieces that were brought and whose slots are open, and the most that it was in this epoch.
	window, most int64
	epoch        uint64
}

// planAhead plans batches, asks for their pieces in order of first use, and ends with the order.
func (s *Stream) planAhead(ctx context.Context) {
	defer close(s.planned)
	defer close(s.fetches)
	p := &planner{s: s, first: 1, shards: map[int]*shard{}}
	for s.keepBack(ctx) {
		d := s.newDraft()
		more, err := p.batch(ctx, d)
		if !more && err == nil {
			return
		}
		d.err = err
		// The draft is the assembler's from here on, and the consumer may release it before this loop has gone over it.
		p.uses = append(p.uses[:0], d.uses...)
		epoch := p.epoch
		select {
		case s.planned <- d: // first: the assembler must see the batch while its pieces are being fetched
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		brought := 0
		for i, piece := range p.uses {
			came, ok := p.bring(ctx, d, i, piece)
			if !ok {
				return // ctx has ended
			}
			brought += came
		}
		s.load.batch(epoch, brought)
	}
}

// batch plans the next batch. more is false behind the last one.
func (p *planner) batch(ctx context.Context, d *draft) (more bool, err error) {
	s := p.s
	refs, info, err := s.cursor.NextBatch(d.refs, s.split)
	d.refs = refs
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Batch = &Batch{
		Epoch: info.Epoch, Position: info.Position, NextEpoch: info.NextEpoch, NextPosition: info.NextPosition,
		Global: info.Global, First: info.First, s: s, draft: d,
	}
	for i := range info.Opened {
		if err := p.open(ctx, &info.Opened[i]); err != nil {
			return true, err
		}
	}
	if err := p.use(d); err != nil {
		return true, err
	}
	for i := range info.Closed {
		at := info.Closed[i].Slot - p.first
		d.closing = append(d.closing, p.slots[at])
		p.close(p.slots[at])
		p.slots[at] = nil
	}
	for len(p.slots) > 0 && p.slots[0] == nil {
		p.slots, p.first = p.slots[1:], p.first+1
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
		s.stalls.plan(planStore)
		sh, err = s.d.shard(ctx, number)
		s.stalls.plan(planOrder)
		if err != nil {
			return err
		}
		if len(p.shards) >= 4096 {
			clear(p.shards)
		}
		p.shards[number] = sh
	}
	base := s.firstBlocks[number]
	from := (int(span.Block) - base) / s.per
	to := (int(span.Block+span.Blocks-1) - base) / s.per
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := take(&s.idleSlots)
	*sl = slot{first: base + from*s.per, pieces: sl.pieces[:0]}
	for n := from; n <= to; n++ {
		id := pieceID{number, n}
		pc := s.pieces[id]
		if pc == nil {
			pc = s.newPiece(id, sh, base)
		}
		pc.open++
		pc.slots++
		sl.pieces = append(sl.pieces, pc)
	}
	p.slots = append(p.slots, sl) // serial numbers count up
	return nil
}

// newPiece makes a piece known; s.mu is held.
func (s *Stream) newPiece(id pieceID, sh *shard, base int) *piece {
	p := take(&s.idlePieces)
	first := id.number * s.per
	p.id, p.first, p.count = id, base+first, min(s.per, int(sh.Blocks)-first)
	p.job = sh.blockRange(first, p.count)
	p.plan = p.job.plan(s.d.joined())
	p.mark = 0
	p.evicted.Store(false)
	p.slots, p.live = 0, false
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

// of is the piece of a ref.
func (p *planner) of(r *order.Ref) *piece {
	sl := p.slots[r.Slot-p.first]
	if len(sl.pieces) == 1 {
		return sl.pieces[0]
	}
	return sl.pieces[(int(r.Block)-sl.first)/p.s.per]
}

// use finds the pieces of a batch's refs and pins them.
func (p *planner) use(d *draft) error {
	s := p.s
	p.seq++
	if info := d.Batch; info.Epoch != p.epoch {
		p.epoch, p.most = info.Epoch, p.window
	}
	p.most = max(p.most, p.window)
	d.seq, d.most = p.seq, p.most
	d.bytes = int64(len(d.refs)) * int64(s.d.tables.Decoded/max(s.d.tables.Samples, 1))
	d.window = p.window - d.bytes
	total := int64(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range d.refs {
		if d.refs[i].Padding {
			d.use = append(d.use, -1)
			continue
		}
		pc := p.of(&d.refs[i])
		if pc.mark != p.seq {
			if int64(pc.plan.size) > s.opts.Memory {
				if err := s.fits(pc); err != nil {
					return err
				}
			}
			pc.mark, pc.markUse = p.seq, int32(len(d.uses))
			pc.pins++
			if !pc.here {
				pc.broughtBy = p.seq
			}
			if !pc.live {
				pc.live = true
				p.window += int64(pc.plan.decoded)
			}
			d.uses = append(d.uses, pc)
			total += int64(bufferSize(pc.plan.size))
		}
		d.use = append(d.use, pc.markUse)
	}
	s.coming++
	// What batches in hand use cannot be evicted. So that there is always room for one more, a batch may keep a share of the
	// budget; one that needs more has its samples copied, and its pieces go one by one: those that are here first, which
	// makes room for the others.
	if d.copied = total > s.memory.limit/int64(2*max(s.opts.Hold, 1)); d.copied {
		slices.SortStableFunc(d.uses, func(x, y *piece) int { return absent(x) - absent(y) })
		for i, pc := range d.uses {
			pc.markUse = int32(i)
		}
		for i := range d.refs {
			if r := &d.refs[i]; !r.Padding {
				d.use[i] = p.of(r).markUse
			}
		}
	}
	return nil
}

func absent(p *piece) int {
	if p.here {
		return 0
	}
	return 1
}

// close takes a slot's pieces out of the window.
func (p *planner) close(sl *slot) {
	for _, pc := range sl.pieces {
		if pc.slots--; pc.slots == 0 && pc.live {
			pc.live = false
			p.window -= int64(pc.plan.decoded)
		}
	}
}

// fits refuses a block that is larger than the budget.
func (s *Stream) fits(p *piece) error {
	for i := range p.count {
		j := p.job.shard.blockRange(p.job.block+i, 1)
		if need := j.plan(s.d.joined()); int64(need.size) > s.opts.Memory {
			err := fmt.Errorf("%w: the block has %d bytes, and the memory budget is %d: raise it to at least %d",
				format.ErrTooLarge, need.decoded, s.opts.Memory, need.size)
			return format.Position(err, j.shard.Name, j.block, j.offset, "")
		}
	}
	return nil
}

// bring gives a piece memory and has it fetched, unless it is there. It is the i-th of the batch. It returns how many it brought, and
// false when ctx has ended.
func (p *planner) bring(ctx context.Context, d *draft, i int, pc *piece) (brought int, ok bool) {
	s := p.s
	defer s.stalls.plan(planOrder)
	for {
		s.mu.Lock()
		there := pc.here || pc.pins == 0 // or was, and has done its service
		admitted := !there && s.admit(pc, d, i)
		s.mu.Unlock()
		switch {
		case there:
			return 0, true
		case admitted:
			s.stalls.plan(planQueue)
			s.stalls.move(pc, pieceQueued)
			select {
			case s.fetches <- pc:
				return 1, true
			case <-ctx.Done():
				return 0, false
			}
		}
		s.stalls.plan(planMemory)
		select {
		case <-s.wake:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// newDraft takes an old draft's memory where there is one.
func (s *Stream) newDraft() *draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := take(&s.idleDrafts)
	*d = draft{refs: d.refs[:0], uses: d.uses[:0], use: d.use[:0], closing: d.closing[:0]}
	return d
}

// take takes the last of those that are idle, or makes a new one.
func take[T any](idle *[]*T) *T {
	if n := len(*idle); n > 0 {
		t := (*idle)[n-1]
		*idle = (*idle)[:n-1]
		return t
	}
	return new(T)
}
