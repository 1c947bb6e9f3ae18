package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
)

// Stream delivers batches in the order of StreamOptions. Next, Checkpoint, Batches and Close are for one goroutine; the
// release of batches may come from others.
//
//	plan (order, budget) -> pieces -> workers: fetch, check, decode, index
//	     -> batches, in order -> assemble: wait for pieces, point into them, Map -> Next
//
// The order is decided by package order before anything runs concurrently. The planner asks for memory in the order of first
// use, runs ahead as far as the budget goes, and evicts only what no batch in hand uses.
type Stream struct {
	d      *Dataset
	opts   StreamOptions
	plan   *order.Plan
	params order.Params
	cursor *order.Cursor
	split  order.Split
	per    int // blocks of a piece

	// epoch and position are behind the last batch delivered.
	epoch, position uint64
	last            *Batch
	err             error
	ledger          *ledger
	stats           streamStats

	mu       sync.Mutex
	wake     chan struct{} // one token: memory was given back
	pieces   map[pieceID]*piece
	resident []*piece // that have a share of the budget
	held     int      // batches delivered and not released
	coming   int      // batches planned and not delivered
	waiting  bool     // Next waits
	first    []int    // of each shard: its first block in the data set
	buffers  *buffers
	idle     []*piece // for reuse
	batches  []*Batch // for reuse

	fetches chan *piece
	planned chan *Batch
	ready   chan *Batch
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	end     func()
}

// Stream opens a stream over the data set, which must stay open as long. Close it.
//
// Errors: those of order.Choose and order.New say which parameter does not fit; a checkpoint of other content, or of another
// order, wraps order.ErrMismatch and names the member.
func (d *Dataset) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	o, err := o.filled(d)
	if err != nil {
		return nil, err
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stream{d: d, opts: o, epoch: o.Epoch, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	if cp := o.Checkpoint; cp != nil {
		s.params = cp.Params
	} else if s.params, err = order.Choose(table, o.Choice()); err != nil {
		return nil, err
	}
	if s.plan, err = order.New([]order.Source{{Table: table, Digest: format.DigestString(d.Digest())}}, s.params); err != nil {
		return nil, err
	}
	if cp := o.Checkpoint; cp != nil {
		if err := cp.Fits(s.plan); err != nil {
			return nil, err
		}
		s.epoch, s.position = cp.Epoch, cp.Position
	}
	if err := s.plan.CheckSplit(s.split); err != nil {
		return nil, err
	}
	if s.cursor, err = s.plan.Seek(s.epoch, s.position); err != nil {
		return nil, err
	}
	if o.Epochs > 0 {
		s.cursor.Until(o.Epoch + o.Epochs)
	}
	s.first = table.ShardFirst
	s.start(ctx, table)
	return s, nil
}

// Params are the frozen parameters of the order, as chosen or as the checkpoint had them.
func (s *Stream) Params() order.Params { return s.params }

// Plan is the order itself.
func (s *Stream) Plan() *order.Plan { return s.plan }

// GlobalBatch is the batch size in use.
func (s *Stream) GlobalBatch() int { return s.split.GlobalBatch }

// Memory is the budget in use, in bytes.
func (s *Stream) Memory() int64 { return s.opts.Memory }

// start begins to read ahead.
func (s *Stream) start(ctx context.Context, t order.Table) {
	s.per = pieceBlocks
	if e := int(s.params.RunBlocks); s.params.Shuffle && e > 0 {
		for s.per = min(e, pieceBlocks); e%s.per != 0; s.per-- {
		}
	}
	blocks := max(uint64(len(t.Samples)), 1)
	perBlock := float64(t.Decoded)/float64(blocks) + 1
	perSample := float64(sampleCost)
	for _, f := range s.d.tables.Fields {
		perSample += fieldCost * float64(f.Samples) / float64(max(s.d.tables.Samples, 1))
	}
	tables := perSample * float64(s.d.tables.Samples) / float64(blocks) // bytes of sample tables a block
	if s.opts.Memory == 0 {
		s.opts.Memory = s.defaultMemory(perBlock + tables)
	}
	// The buffers' share of the budget: what the sample tables beside them take is proportional.
	s.buffers = newBuffers(int64(float64(s.opts.Memory) * perBlock / (perBlock + tables)))
	s.buffers.reserve(int64(s.opts.Workers) * fetchMost)
	local := s.opts.GlobalBatch/s.opts.World + 1
	ahead := min(max(64<<10/local, 2), 64)
	s.pieces, s.wake = map[pieceID]*piece{}, make(chan struct{}, 1)
	s.fetches, s.planned, s.ready = make(chan *piece, 4*s.opts.Workers), make(chan *Batch, ahead), make(chan *Batch, 2)
	s.ledger = newLedger(s.d, s.opts)
	var end func()
	s.ctx, end = s.d.scope(context.WithoutCancel(ctx))
	s.ctx, s.cancel = context.WithCancelCause(s.ctx)
	s.end = end
	s.wg.Go(func() { s.planAhead(s.ctx) })
	s.wg.Go(func() { s.assemble(s.ctx) })
	for range s.opts.Workers {
		s.wg.Go(func() { s.serve(s.ctx) })
	}
}

// sampleCost and fieldCost are the bytes of a Sample and of a FieldView.
const sampleCost, fieldCost = 64, 48

// defaultMemory is what the order keeps live for this rank, and half as much to run ahead; at least 64 MiB, and no more than
// the whole data set takes.
func (s *Stream) defaultMemory(perBlock float64) int64 {
	all := perBlock * float64(s.d.tables.Blocks) * 9 / 8
	live := perBlock * 16
	if s.params.Shuffle {
		runs := float64(max(s.params.RunBlocks, 1))
		if s.params.RunBlocks == 0 {
			runs = float64(s.d.tables.Blocks) / float64(max(s.d.tables.Shards, 1))
		}
		lanes := min(float64(s.params.Lanes), float64(s.params.Lanes)/float64(s.opts.World)+2)
		live = perBlock * runs * lanes * float64(s.params.Delay+4)
	}
	batch := perBlock * float64(s.opts.GlobalBatch) / float64(s.opts.World)
	want := 1.5*live + batch + float64(s.opts.Workers)*2*fetchMost
	return int64(max(64<<20, min(want, all+float64(s.opts.Workers)*2*fetchMost)))
}

// serve is one worker.
func (s *Stream) serve(ctx context.Context) {
	st := stage{d: s.d, scratch: s.d.scratch.get(), keepGoing: true}
	defer func() { s.d.scratch.put(st.scratch) }()
	for {
		select {
		case p, more := <-s.fetches:
			if !more {
				return
			}
			p.fetch(ctx, s, &st)
			close(p.done)
		case <-ctx.Done():
			return
		}
	}
}

// Next returns the next batch, or io.EOF behind the last. The batch before it is released unless StreamOptions.Hold is set.
// An error sticks. A batch with an error delivers nothing of itself, and all batches before it have been delivered.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.opts.Hold == 0 && s.last != nil {
		s.last.Release()
		s.last = nil
	}
	if s.opts.Hold > 0 {
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held >= s.opts.Hold {
			return nil, fmt.Errorf("reader: %w: %d are held and none was released; call Release on them, or raise Hold", ErrHeld, held)
		}
	}
	s.wait(true)
	defer s.wait(false)
	select {
	case b, more := <-s.ready:
		switch {
		case !more:
			s.err = io.EOF
			if err := context.Cause(s.ctx); err != nil {
				s.err = err
			}
		case b.err != nil:
			s.err = b.err
		default:
			s.mu.Lock()
			s.held++
			s.coming--
			s.mu.Unlock()
			s.epoch, s.position, s.last = b.NextEpoch, b.NextPosition, b
			return b, nil
		}
		return nil, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
		return nil, s.err
	}
}

// wait tells the planner whether the consumer waits: only then is memory taken from what will be needed later.
func (s *Stream) wait(waiting bool) {
	s.mu.Lock()
	s.waiting = waiting
	s.mu.Unlock()
	if waiting {
		s.nudge()
	}
}

// nudge wakes the planner.
func (s *Stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Batches goes through all batches. It ends at the end of the stream, or behind an error.
func (s *Stream) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		for {
			b, err := s.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// Checkpoint is the place behind the last batch that Next returned: samples delivered, whatever has been read ahead. It is
// the same for all ranks that are at the same step.
func (s *Stream) Checkpoint() (order.Checkpoint, error) { return s.checkpoint(s.epoch, s.position) }

func (s *Stream) checkpoint(epoch, position uint64) (order.Checkpoint, error) {
	cp, err := s.plan.Checkpoint(epoch, position)
	if err != nil {
		return cp, err
	}
	cp.GlobalBatch, cp.Tables = s.split.GlobalBatch, s.d.Tables()
	cp.SkipHash, cp.Skipped = s.ledger.mark()
	return cp, nil
}

// Close ends the stream; batches in hand are of no use afterwards. All goroutines have ended when it returns.
func (s *Stream) Close() error {
	if s.err == nil {
		s.err = errors.New("reader: the stream is closed")
	}
	s.cancel(s.err)
	s.wg.Wait()
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.resident {
		if p.mapped != nil {
			s.d.objects.release(p.mapped)
			p.mapped = nil
		}
	}
	s.pieces, s.resident, s.idle, s.batches = nil, nil, nil, nil
	return nil
}

// streamStats counts what a stream did.
type streamStats struct {
	blocks, stored, evicted, rereads atomic.Uint64
}

// StreamStats counts what a stream has done so far.
type StreamStats struct {
	// Blocks and StoredBytes were fetched, the ones read again included.
	Blocks, StoredBytes uint64
	// Evicted blocks had to go while samples of them were still to come, for want of memory: they are read again.
	Evicted uint64
	// Rereads are reads repeated because the first gave damaged bytes.
	Rereads uint64
	// Skipped samples are holes.
	Skipped uint64
}

// Stats counts what the stream has done so far. It may be called from any goroutine.
func (s *Stream) Stats() StreamStats {
	_, skipped := s.ledger.mark()
	return StreamStats{Blocks: s.stats.blocks.Load(), StoredBytes: s.stats.stored.Load(), Evicted: s.stats.evicted.Load(),
		Rereads: s.stats.rereads.Load(), Skipped: skipped}
}
