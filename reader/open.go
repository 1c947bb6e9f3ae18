package reader

import (
	"context"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/ledger"
	"github.com/shardtool/shardtool/reader/order"
)

// Stream opens a stream over the data set. The caller must Close the stream and keep d open until
// then. The context is for opening alone.
//
// Errors: invalid options, or options that do not fit the data set, wrap ErrOptions. A checkpoint
// of other content, or of another order, wraps order.ErrMismatch and names the member.
func (d *Dataset) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	in := &input{Dataset: d, share: 1}
	o, err := o.filled([]*input{in})
	if err != nil {
		return nil, optionsError{err}
	}
	in.table, err = d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stream{inputs: []*input{in}, opts: o, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	if err := s.useRows(ctx); err != nil {
		return nil, err
	}
	if o.inUnits() {
		if err := s.openUnits(ctx, in); err != nil {
			return nil, err
		}
		return s, nil
	}
	var params order.Params
	s.place.epoch = o.Epoch
	if cp := o.Checkpoint; cp != nil {
		params = cp.Params
	} else if params, err = order.Choose(in.table, o.Choice()); err != nil {
		return nil, optionsError{err}
	}
	if in.plan, err = order.New([]order.Source{{Table: in.table, Digest: d.orderDigest()}}, params); err != nil {
		return nil, optionsError{err}
	}
	if cp := o.Checkpoint; cp != nil {
		if err := cp.Fits(in.plan); err != nil {
			return nil, err
		}
		s.place.epoch, s.place.position = cp.Epoch, cp.Position
	}
	if err := in.plan.CheckSplit(s.split); err != nil {
		return nil, optionsError{err}
	}
	cursor, err := in.plan.Seek(s.place.epoch, s.place.position)
	if err != nil {
		return nil, optionsError{err}
	}
	if o.Epochs > 0 {
		cursor.Until(o.End())
	}
	s.start(ctx, rankOrder{cursor, s.split})
	return s, nil
}

// start wires the parts of the stream, and begins to read ahead.
func (s *Stream) start(ctx context.Context, of planner.Order) {
	s.life.opened = time.Now()
	s.scope(context.WithoutCancel(ctx))
	s.sizes = sizesOf(s.inputs, &s.opts)
	s.ledger = ledger.New(s.opts.mostSkipped(s.inputs), s.opts.Skipped)
	s.count.skipped = s.ledger.Mark()
	s.flow = flow{
		fetches: make(chan *window.Piece, max(4*s.opts.Workers, s.sizes.requests)), drafts: make(chan *planner.Draft, s.sizes.ahead),
		landing: make(chan struct{}, 1), ready: make(chan assembled, s.sizes.queue),
	}
	if s.sizes.requests > 0 {
		s.flow.flight = fetch.NewFlight(s.pool(), s.opts.Workers, s.sizes.flight)
	}
	s.window = window.New(s.sizes.window, &s.clock)
	s.tune()
	s.planner = &planner.Planner{
		Order: of, Shards: &shards{inputs: s.inputs}, Sources: s.sources(),
		Window: s.window, Clock: &s.clock, Ahead: s.tuning.ahead, Load: &s.tuning.load,
		Limit: s.sizes.memory, Share: s.sizes.window / int64(2*max(s.opts.Hold, 1)),
		Drafts: s.flow.drafts, Fetches: s.flow.fetches,
	}
	if s.opts.Log != nil {
		epoch := s.place.epoch // Next moves it
		s.life.wg.Go(func() { s.log(s.life.ctx, epoch) })
	}
	s.life.wg.Go(func() { s.planner.Run(s.life.ctx) })
	for i := range max(s.sizes.workers, s.opts.FirstWorkers) {
		s.life.wg.Go(func() { s.work(s.life.ctx, i >= s.sizes.workers) })
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

// sources are those of the planner.
func (s *Stream) sources() []planner.Source {
	out := make([]planner.Source, len(s.inputs))
	for i, in := range s.inputs {
		if in.Dataset != nil && in.plan != nil { // else it gives nothing
			_, wanted := in.pieces(s.sizes.pieces[i])
			first := s.sizes.pieces[i]
			if in.plan.Params().Shuffle {
				first = 1
			}
			out[i] = planner.Source{
				PieceBlocks: s.sizes.pieces[i], FirstBlocks: first, Wanted: wanted, SampleBytes: int64(in.table.Decoded / max(in.tables.Samples, 1)), Joined: in.source.Joined(),
			}
		}
	}
	return out
}

// work is one worker: it fills pieces, or with helps only until the first batch is delivered.
func (s *Stream) work(ctx context.Context, helps bool) {
	at := account.NewWorker(&s.clock, nil)
	if s.tuning.meters != nil {
		at = account.NewWorker(&s.clock, s.tuning.meters)
	}
	w := window.Filler{Worker: fetch.Worker{
		Flight: s.flow.flight, KeepGoing: true, Account: at, Rereads: func() { s.count.rereads.Add(1) },
	}, Mapped: s.sizes.inPlace, Rows: s.rows != nil}
	if w.Flight == nil {
		w.Scratch = s.pool().Get()
		defer func() { s.pool().Put(w.Scratch) }()
	}
	ctx = objstore.WithTracer(ctx, at)
	for !helps || s.count.first() {
		select {
		case p, more := <-s.flow.fetches:
			if !more || !s.tuning.gate.Enter(ctx) {
				return
			}
			at.Begin(&p.Piece)
			w.Fill(ctx, p)
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

// assemble turns drafts into batches, in order.
func (s *Stream) assemble(ctx context.Context) {
	hand, end := s.hand, func() {}
	if s.opts.Rows == RowsReady {
		c := s.copyAhead(ctx)
		hand, end = c.hand, c.end
	}
	defer close(s.flow.ready)
	defer end()
	a := assemble.Assembler{Window: s.window, Clock: &s.clock, Landing: s.flow.landing, Skip: s.skip}
	if s.sizes.inPlace {
		a.Own = s.own
	}
	for d := range s.flow.drafts {
		out := assembled{err: d.Err}
		if d.Err == nil {
			out.Batch = s.newBatch(d)
			out.err = out.fill(ctx, &a)
		}
		if !hand(ctx, out) || out.err != nil {
			return
		}
	}
}

// own has the blocks of a piece in memory of the stream.
func (s *Stream) own(ctx context.Context, p *window.Piece) {
	f := window.Filler{Worker: fetch.Worker{Scratch: s.pool().Get(), KeepGoing: true, Rereads: func() { s.count.rereads.Add(1) }}}
	defer func() { s.pool().Put(f.Scratch) }()
	f.Own(ctx, p)
}

// hand hands a batch to the consumer, who owns it from here on. It returns false when ctx has ended.
func (s *Stream) hand(ctx context.Context, out assembled) bool {
	s.clock.Hand(1)
	select {
	case s.flow.ready <- out:
		return true
	case <-ctx.Done():
		return false
	}
}

// skip decides about a sample of a damaged block: nil leaves it out.
func (s *Stream) skip(p *window.Piece, r *order.Ref, cause error) error {
	in := s.inputs[r.Source]
	if !s.opts.SkipCorrupt || !fetch.Proven(cause) {
		return in.failed(cause)
	}
	j := p.Job.Shard.BlockRange(p.Job.Block+int(r.Block)-p.First, 1)
	return in.failed(s.ledger.Skip(ledger.Block{
		Source: in.name, Shard: j.Shard.Name, Block: j.Block, First: j.First, Samples: uint64(j.Shard.Rows[j.From].Samples), Reason: cause.Error(),
	}, cause))
}
