package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/order"
)

// Stream delivers batches in the order of StreamOptions. Next, Checkpoint and Batches are for one goroutine; batches may be
// released and the stream closed by others.
//
//	plan (order, budget) -> pieces -> workers: fetch, check, decode, index
//	     -> drafts of batches, in order -> assemble: wait for pieces, point into them, Map -> Next
//
// The order is decided by package order before anything runs concurrently. The planner asks for memory in the order of first
// use, runs ahead as far as the budget goes and the step needs, and evicts only what no batch in hand uses.
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
	stalls          stallClock
	opened          time.Time
	tuned           bool
	returned        time.Time // Next, for the last time; of the consumer's goroutine
	meters          meters
	load            load
	gate            *gate // of requests; nil where reading is a matter of the processor
	asked           int   // of an elastic store; the tuner's

	mu          sync.Mutex
	memory      memory
	pieces      map[pieceID]*piece // nil when closed
	resident    []*piece           // that have their memory
	held        int                // batches delivered and not released
	coming      int                // batches planned and not delivered
	waiting     bool               // Next waits
	depth       int                // coming that the planner goes to
	kept        bool               // the planner waits for that
	ended       time.Duration      // how long the stream was open; 0: it is
	skipped     ledgerMark         // behind the last batch delivered
	firstBlocks []int              // of each shard: its first block in the data set
	// What is used again.
	idlePieces []*piece
	idleTables []*sampleTable
	idleSlots  []*slot
	idleDrafts []*draft
	idleViews  []*views

	wake    chan struct{} // one token: memory was given back, a batch was taken, or Next waits
	kick    chan struct{} // one token: the tuner shall look now
	landing chan struct{} // one token: a piece has landed
	fetches chan *piece
	planned chan *draft
	ready   chan *draft
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	end     func()
	flight  *flight // of a remote store
	closing sync.Once
}

// Stream opens a stream over the data set, which must stay open as long. Close it. The context is for opening alone.
//
// Errors: options that cannot be, or do not fit the data set, wrap ErrOptions; a checkpoint of other content, or of another order,
// wraps order.ErrMismatch and names the member.
func (d *Dataset) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	o, err := o.filled(d)
	if err != nil {
		return nil, optionsError{err}
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stream{d: d, opts: o, opened: time.Now(), epoch: o.Epoch, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	if cp := o.Checkpoint; cp != nil {
		s.params = cp.Params
	} else if s.params, err = order.Choose(table, o.Choice()); err != nil {
		return nil, optionsError{err}
	}
	if s.plan, err = order.New([]order.Source{{Table: table, Digest: format.DigestString(d.Digest())}}, s.params); err != nil {
		return nil, optionsError{err}
	}
	if cp := o.Checkpoint; cp != nil {
		if err := cp.Fits(s.plan); err != nil {
			return nil, err
		}
		s.epoch, s.position = cp.Epoch, cp.Position
	}
	if err := s.plan.CheckSplit(s.split); err != nil {
		return nil, optionsError{err}
	}
	if s.cursor, err = s.plan.Seek(s.epoch, s.position); err != nil {
		return nil, optionsError{err}
	}
	if o.Epochs > 0 {
		s.cursor.Until(o.End())
	}
	s.firstBlocks, s.stalls.off, s.stalls.again = table.ShardFirst, o.noStalls, o.stallsAgain
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
	blocks := max(float64(len(t.Samples)), 1)
	samples := float64(s.d.tables.Samples)
	fields := 0.0 // of a sample
	for _, f := range s.d.tables.Fields {
		fields += float64(f.Samples) / max(samples, 1)
	}
	perBlock := float64(t.Decoded)/blocks + 1
	tables := (startCost + memberCost*fields) * samples / blocks // bytes of sample tables a block
	local := s.opts.GlobalBatch/s.opts.World + 1
	ahead := min(max(64<<10/local, 2), 1024)
	// What is not blocks: a worker's scratch, and batches that are planned or assembled.
	rest := int64(s.opts.Workers)*scratchCost + int64(local)*(int64(ahead)*refCost+int64(s.opts.Hold+3)*int64(sampleCost+fieldCost*fields))
	requests, most := s.requests(), 0
	stored := float64(s.d.tables.Bytes) / blocks * s.runAhead() // bytes of a request
	all := int64(s.d.tables.Bytes)                              // that can be on their way
	if s.opts.Memory == 0 {
		s.opts.Memory = s.defaultMemory(perBlock+tables, rest+min(int64(float64(requests)*stored), all)+int64(requests)*requestCost)
	}
	if requests > 0 { // and stored bytes on their way
		most = s.mostRequests(requests, stored)
		fly := max(min(s.opts.Memory/4, int64(float64(most)*stored), all), 1<<20)
		s.flight = s.d.newFlight(s.opts.Workers, fly)
		rest += fly + int64(most)*requestCost
	}
	// The buffers' share of what remains: what the sample tables beside them take is proportional.
	s.memory.limit = int64(float64(s.opts.Memory-min(rest, s.opts.Memory/2)) * perBlock / (perBlock + tables))
	s.per = pieceSize(s.params, int(float64(s.memory.limit)/perBlock), s.localLanes())
	s.pieces = map[pieceID]*piece{}
	s.wake, s.landing, s.kick = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	s.fetches, s.planned, s.ready = make(chan *piece, max(4*s.opts.Workers, requests)), make(chan *draft, ahead), make(chan *draft, 2)
	s.ledger = newLedger(s.d, s.opts)
	s.skipped = s.ledger.mark()
	s.ctx, s.end = s.d.scope(context.WithoutCancel(ctx))
	s.ctx, s.cancel = context.WithCancelCause(s.ctx)
	batch := perBlock * float64(local) / max(samples/blocks, 1e-9)
	room := max(float64(s.memory.limit)-s.live(perBlock), float64(s.memory.limit)/8) / max(batch, 1)
	s.tunes(tuneLimits{
		start: requests, most: most, deepest: cmp.Or(s.opts.Depth, ahead+4), fixedRequests: s.opts.Requests > 0, fixedDepth: s.opts.Depth > 0,
		workers: s.opts.Workers, room: room,
	})
	if o := s.opts; o.Log != nil {
		epoch := s.epoch // Next moves it
		s.wg.Go(func() { s.log(s.ctx, epoch) })
	}
	s.wg.Go(func() { s.planAhead(s.ctx) })
	s.wg.Go(func() { s.assemble(s.ctx) })
	goroutines := max(s.opts.Workers, most)
	if requests > 0 && s.opts.Requests > 0 {
		goroutines = requests
	}
	for range goroutines {
		s.wg.Go(func() { s.serve(s.ctx) })
	}
}

// serve is one worker.
func (s *Stream) serve(ctx context.Context) {
	at := &follow{clock: &s.stalls}
	if s.tuned {
		at.meters = &s.meters
	}
	st := stage{d: s.d, flight: s.flight, keepGoing: true, follow: at, rereads: &s.stats.rereads}
	reads := objstore.WithTracer(ctx, at) // of its pieces
	if st.flight == nil {
		st.scratch = s.d.scratch.get()
		defer func() { s.d.scratch.put(st.scratch) }()
	}
	var results []result
	for {
		select {
		case p, more := <-s.fetches:
			if !more {
				return
			}
			if s.gate != nil && !s.gate.enter(ctx) {
				return
			}
			at.begin(p)
			results = p.fetch(reads, s, &st, results)
			at.at(pieceLanded)
			p.landed.Store(true)
			signal(s.landing)
			if s.gate != nil {
				s.gate.leave()
			}
		case <-ctx.Done():
			return
		}
	}
}

// Next returns the next batch, or io.EOF behind the last. The batch before it is released unless StreamOptions.Hold is set.
// An error sticks, but for that of ctx and ErrHeld. A batch with an error delivers nothing of itself, and all batches before it have
// been delivered.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if s.err != nil {
		return nil, s.err
	}
	entered := time.Now()
	s.stepped(entered)
	b, err := s.next(ctx, entered)
	s.returned = s.stalls.end(entered)
	return b, err
}

// next is Next between the times that it is called and that it returns.
func (s *Stream) next(ctx context.Context, entered time.Time) (*Batch, error) {
	if s.opts.Hold == 0 && s.last != nil {
		s.last.Release()
		s.last = nil
	}
	if held := s.wants(true); s.opts.Hold > 0 && held >= s.opts.Hold {
		s.wants(false)
		return nil, fmt.Errorf("reader: %w: %d are held and none was released; call Release on them, or raise Hold", ErrHeld, held)
	}
	defer s.wants(false)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	d, more, err := s.receive(ctx, entered)
	switch {
	case err != nil:
		return nil, err
	case s.ctx.Err() != nil: // closed, and what the batch points to is gone
		s.err = context.Cause(s.ctx)
	case !more:
		s.err = io.EOF
	case d.err != nil:
		s.err = d.err
	default:
		s.deliver(d)
		return d.Batch, nil
	}
	return nil, s.err
}

// receive takes the next draft, assembled, and begins the account of the wait for it. more is false behind the last one. An error is
// that of ctx.
func (s *Stream) receive(ctx context.Context, entered time.Time) (d *draft, more bool, err error) {
	select {
	case d, more = <-s.ready:
	default:
		s.stalls.begin(entered)
		defer s.waited(entered)
		select {
		case d, more = <-s.ready:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
	if more {
		s.stalls.hand(-1)
	}
	return d, more, nil
}

// waited tells the tuner of a wait that the depth may be to blame for.
func (s *Stream) waited(since time.Time) {
	if !s.tuned || time.Since(since) < noticed {
		return
	}
	s.mu.Lock()
	held := s.kept && s.stats.batches > 0
	s.mu.Unlock()
	if held {
		s.meters.held.Store(true)
		signal(s.kick)
	}
}

func (s *Stream) deliver(d *draft) {
	b := d.Batch
	s.mu.Lock()
	s.held++
	s.coming--
	if s.kept {
		s.nudge()
	}
	s.skipped = b.skipped
	if s.stats.batches++; s.stats.batches == 1 {
		s.stats.firstWait = s.stalls.stalls().Total()
	}
	s.stats.samples += uint64(d.samples)
	s.stats.bytes += uint64(d.delivers)
	s.mu.Unlock()
	s.epoch, s.position, s.last = b.NextEpoch, b.NextPosition, b
}

// wants tells the planner whether the consumer waits: only then is memory taken from what will be needed later. It returns how
// many batches are held.
func (s *Stream) wants(batch bool) (held int) {
	s.mu.Lock()
	s.waiting = batch
	held = s.held
	s.mu.Unlock()
	if batch {
		s.nudge()
	}
	return held
}

// nudge wakes the planner.
func (s *Stream) nudge() { signal(s.wake) }

// signal leaves a token for whoever looks next, unless there is one.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
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

// Checkpoint is the place after the last batch that Next returned: samples delivered, whatever has
// been read ahead. Ranks at the same step have the same place. SkipHash and Skipped are those of
// this rank; Merge unites them.
func (s *Stream) Checkpoint() (order.Checkpoint, error) {
	s.mu.Lock()
	skipped := s.skipped
	s.mu.Unlock()
	return s.checkpoint(s.epoch, s.position, skipped)
}

func (s *Stream) checkpoint(epoch, position uint64, skipped ledgerMark) (order.Checkpoint, error) {
	cp, err := s.plan.Checkpoint(epoch, position)
	if err != nil {
		return cp, err
	}
	cp.GlobalBatch, cp.Tables = s.split.GlobalBatch, s.d.Tables()
	cp.SkipHash, cp.Skipped = skipped.hash, skipped.samples
	return cp, nil
}

// errStreamClosed is what Next returns after Close.
var errStreamClosed = fmt.Errorf("reader: the stream is closed: %w", fs.ErrClosed)

// Close ends the stream, from any goroutine and as often as wanted. Samples of batches in hand must not be touched any more: their
// memory may be gone. A Next that waits returns an error that wraps fs.ErrClosed. All goroutines have ended when Close returns, so
// it waits for calls of Map.
func (s *Stream) Close() error {
	s.cancel(errStreamClosed)
	s.wg.Wait()
	s.end()
	s.closing.Do(func() {
		s.ask(0)
		if s.flight != nil {
			s.flight.land(s.d)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = memory{most: s.memory.most}
	if s.ended == 0 {
		s.ended = time.Since(s.opened)
	}
	s.pieces, s.resident, s.idlePieces, s.idleTables, s.idleSlots, s.idleDrafts, s.idleViews = nil, nil, nil, nil, nil, nil, nil
	return nil
}

// streamStats counts what a stream did. Stream.mu guards what is delivered.
type streamStats struct {
	blocks, stored, evicted, rereads, decisions atomic.Uint64

	batches, samples, bytes uint64
	firstWait               time.Duration
}
