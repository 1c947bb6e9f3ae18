package reader

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Stream delivers batches in the order of StreamOptions. Next, Checkpoint and Batches are for one
// goroutine. Batches may be released, and the stream may be closed, by others.
//
//	planner: order ──▶ drafts of batches ──────────────────────────▶ assembler ──▶ ready ──▶ Next
//	                └▶ window: pieces get memory ──▶ workers: fetch, check, decode ─┘
//
// Package order decides the order before anything runs concurrently. Each package below
// reader/internal documents its part.
type Stream struct {
	d       *Dataset
	opts    StreamOptions
	plan    *order.Plan
	split   order.Split
	sizes   sizes
	clock   account.Clock
	window  *window.Window
	planner *planner.Planner
	tuning  tuning
	ledger  *ledger
	flow    flow
	place   place     // owned by the consumer's goroutine
	count   delivered // what was delivered
	life    lifetime
}

// flow is the channels between the goroutines of a stream.
type flow struct {
	fetches chan *window.Piece
	drafts  chan *planner.Draft
	landing chan struct{} // holds a token when a piece has landed
	ready   chan assembled
	flight  *fetch.Flight // of a remote store
}

// lifetime is when a stream began, and how it ends.
type lifetime struct {
	opened time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	end    func()
	wg     sync.WaitGroup
	once   sync.Once
}

// Stream opens a stream over the data set. The caller must Close the stream and keep d open until
// then. The context is for opening alone.
//
// Errors: invalid options, or options that do not fit the data set, wrap ErrOptions. A checkpoint of
// other content, or of another order, wraps order.ErrMismatch and names the member.
func (d *Dataset) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	o, err := o.filled(d)
	if err != nil {
		return nil, optionsError{err}
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stream{d: d, opts: o, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	var params order.Params
	s.place.epoch = o.Epoch
	if cp := o.Checkpoint; cp != nil {
		params = cp.Params
	} else if params, err = order.Choose(table, o.Choice()); err != nil {
		return nil, optionsError{err}
	}
	if s.plan, err = order.New([]order.Source{{Table: table, Digest: format.DigestString(d.Digest())}}, params); err != nil {
		return nil, optionsError{err}
	}
	if cp := o.Checkpoint; cp != nil {
		if err := cp.Fits(s.plan); err != nil {
			return nil, err
		}
		s.place.epoch, s.place.position = cp.Epoch, cp.Position
	}
	if err := s.plan.CheckSplit(s.split); err != nil {
		return nil, optionsError{err}
	}
	cursor, err := s.plan.Seek(s.place.epoch, s.place.position)
	if err != nil {
		return nil, optionsError{err}
	}
	if o.Epochs > 0 {
		cursor.Until(o.End())
	}
	s.start(ctx, table, cursor)
	return s, nil
}

// start wires the parts of the stream, and begins to read ahead.
func (s *Stream) start(ctx context.Context, t order.Table, cursor *order.Cursor) {
	s.life.opened = time.Now()
	s.life.ctx, s.life.end = s.d.catalog.Scope(context.WithoutCancel(ctx))
	s.life.ctx, s.life.cancel = context.WithCancelCause(s.life.ctx)
	s.sizes = s.d.sizesOf(&s.opts, s.plan.Params(), t)
	s.ledger = newLedger(s.d, s.opts)
	s.count.skipped = s.ledger.mark()
	s.flow = flow{
		fetches: make(chan *window.Piece, max(4*s.opts.Workers, s.sizes.requests)), drafts: make(chan *planner.Draft, s.sizes.ahead),
		landing: make(chan struct{}, 1), ready: make(chan assembled, 2),
	}
	if s.sizes.requests > 0 {
		s.flow.flight = fetch.NewFlight(&s.d.pool, s.opts.Workers, s.sizes.flight)
	}
	s.window = window.New(s.sizes.window, &s.clock)
	s.tune()
	s.planner = &planner.Planner{
		Order: rankOrder{cursor, s.split}, Shards: &shards{d: s.d, plan: s.plan, first: t.ShardFirst},
		Sources: []planner.Source{{PieceBlocks: s.sizes.piece, SampleBytes: int64(t.Decoded / max(s.d.tables.Samples, 1)), Joined: s.d.source.Joined()}},
		Window:  s.window, Clock: &s.clock, Ahead: s.tuning.ahead, Load: &s.tuning.load,
		Limit: s.sizes.memory, Share: s.sizes.window / int64(2*max(s.opts.Hold, 1)),
		Drafts: s.flow.drafts, Fetches: s.flow.fetches,
	}
	if s.opts.Log != nil {
		epoch := s.place.epoch // Next moves it
		s.life.wg.Go(func() { s.log(s.life.ctx, epoch) })
	}
	s.life.wg.Go(func() { s.planner.Run(s.life.ctx) })
	for range s.sizes.workers {
		s.life.wg.Go(func() { s.work(s.life.ctx) })
	}
	s.life.wg.Go(func() { s.assemble(s.life.ctx) })
}

// rankOrder is one rank's part of an order.
type rankOrder struct {
	*order.Cursor
	split order.Split
}

func (o rankOrder) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return o.NextBatch(refs, o.split)
}

// shards finds the shards of a stream for the planner, and keeps those used last.
type shards struct {
	d     *Dataset
	plan  *order.Plan
	first []int // block of each shard in the data set
	known map[int]*fetch.Shard
}

func (s *shards) Shard(ctx context.Context, _ int, block uint32) (*fetch.Shard, int, error) {
	number := s.plan.ShardOf(block)
	if sh := s.known[number]; sh != nil {
		return sh, s.first[number], nil
	}
	sh, err := s.d.catalog.Shard(ctx, number)
	if err != nil {
		return nil, 0, err
	}
	if s.known == nil || len(s.known) >= 4096 {
		s.known = map[int]*fetch.Shard{}
	}
	s.known[number] = sh
	return sh, s.first[number], nil
}

// work is one worker: it fills pieces.
func (s *Stream) work(ctx context.Context) {
	at := account.NewWorker(&s.clock, nil)
	if s.tuning.meters != nil {
		at = account.NewWorker(&s.clock, s.tuning.meters)
	}
	w := fetch.Worker{
		Source: s.d.source, Flight: s.flow.flight, KeepGoing: true, Account: at, Rereads: func() { s.count.rereads.Add(1) },
	}
	if w.Flight == nil {
		w.Scratch = s.d.pool.Get()
		defer func() { s.d.pool.Put(w.Scratch) }()
	}
	ctx = objstore.WithTracer(ctx, at)
	var results []fetch.Result
	for {
		select {
		case p, more := <-s.flow.fetches:
			if !more || !s.tuning.gate.Enter(ctx) {
				return
			}
			at.Begin(&p.Piece)
			results = p.Fill(ctx, &w, results)
			s.count.blocks.Add(uint64(p.Blocks))
			s.count.stored.Add(uint64(p.Plan.Stored))
			at.At(account.Landed)
			p.Land()
			signal(s.flow.landing)
			s.tuning.gate.Leave()
		case <-ctx.Done():
			return
		}
	}
}

// signal leaves a token in the channel unless one is there.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// assembled is a batch, or the error that ends the stream.
type assembled struct {
	*Batch
	err error
}

// assemble turns drafts into batches, in order.
func (s *Stream) assemble(ctx context.Context) {
	defer close(s.flow.ready)
	a := assemble.Assembler{Window: s.window, Clock: &s.clock, Landing: s.flow.landing, Skip: s.skip}
	for d := range s.flow.drafts {
		out := assembled{err: d.Err}
		if d.Err == nil {
			out.Batch = s.newBatch(d)
			out.err = out.fill(ctx, &a)
		}
		s.clock.Hand(1)
		select {
		case s.flow.ready <- out: // owned by the consumer from here on
		case <-ctx.Done():
			return
		}
		if out.err != nil {
			return
		}
	}
}

// skip decides about a sample of a damaged block.
func (s *Stream) skip(p *window.Piece, r *order.Ref, cause error) error {
	if s.opts.OnCorrupt == CorruptSkips && fetch.Proven(cause) {
		return s.ledger.hole(p, r, cause)
	}
	return cause
}

// Params returns the frozen parameters of the order, as chosen or as in the checkpoint.
func (s *Stream) Params() order.Params { return s.plan.Params() }

// Plan returns the order itself.
func (s *Stream) Plan() *order.Plan { return s.plan }

// GlobalBatch returns the batch size in use.
func (s *Stream) GlobalBatch() int { return s.split.GlobalBatch }

// Memory returns the budget in use, in bytes.
func (s *Stream) Memory() int64 { return s.sizes.memory }

// errStreamClosed is what Next returns after Close.
var errStreamClosed = fmt.Errorf("reader: the stream is closed: %w", fs.ErrClosed)

// Close ends the stream. It may be called from any goroutine, and more than once. Samples of batches
// in hand must not be used any more: their memory may be freed. A Next that waits returns an error
// that wraps fs.ErrClosed. All goroutines have ended when Close returns, so it waits for calls of Map.
func (s *Stream) Close() error {
	s.life.cancel(errStreamClosed)
	s.life.wg.Wait()
	s.life.end()
	s.life.once.Do(func() {
		s.tuning.ask(s.d.source.Store, 0)
		s.flow.flight.Land()
		s.window.Close()
		s.count.end(time.Since(s.life.opened))
	})
	return nil
}
