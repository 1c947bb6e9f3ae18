package reader

import (
	"context"
	"runtime"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/assemble"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/tune"
	"github.com/shardtool/shardtool/reader/internal/window"
	"github.com/shardtool/shardtool/reader/order"
)

// Stream opens a stream over the data set. The caller must Close the stream and keep d open until
// then. The context is for opening alone.
//
// For invalid options, or options that do not fit the data set, the error wraps ErrOptions. For a
// checkpoint of other content, or of another order, it wraps order.ErrMismatch and names the
// member.
func (d *Dataset) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	if _, err := o.filled([]*input{{Dataset: d, share: 1}}); err != nil {
		return nil, optionsError{err}
	}
	spec, planning := o.spec()
	run, err := d.read(ctx, spec, o.Checkpoint, Change{}, planning)
	if err != nil {
		return nil, err
	}
	s, err := run.Stream(ctx, o)
	if err != nil {
		run.Close()
		return nil, err
	}
	s.life.ends = append(s.life.ends, func() { run.Close() })
	return s, nil
}

// read returns the run of a data set that is read alone.
func (d *Dataset) read(ctx context.Context, s Spec, from *Checkpoint, c Change, p Planning) (*Run, error) {
	err := from.of(false)
	if err != nil {
		return nil, err
	}
	in := &input{Dataset: d, share: 1, unit: unitSize{samples: 1}, delayed: from == nil && s.Order.Delay > 0}
	if in.table, err = d.groupTable(ctx, &s, from); err != nil {
		return nil, err
	}
	return s.alone(ctx, in, from, c, p)
}

// start wires the parts of the stream, and begins to read ahead.
func (s *Stream) start(of planner.Order) {
	s.life.opened = time.Now()
	first, levels := s.number()
	s.sizes = sizesOf(s.inputs, &s.opts)
	s.ledger = ledger.New(s.opts.mostSkipped(s.inputs), s.opts.Faults.Skipped)
	s.count.skipped = s.ledger.Mark()
	s.flow = flow{
		fetches: make(chan *window.Piece, max(4*s.opts.Tuning.Workers, s.sizes.requests)),
		landing: make(chan struct{}, 1),
	}
	s.tuning.turns = fetch.Turns{Gate: tune.NewGate(s.opts.Tuning.Workers), Pool: s.pool()}
	if s.sizes.requests > 0 {
		s.flow.flight = fetch.NewFlight(&s.tuning.turns, s.sizes.flight)
	}
	s.window = window.New(s.sizes.window, &s.clock)
	s.from = origins(s.inputs, s.window)
	share := s.sizes.window / int64(2*max(s.opts.Hold, 1))
	if s.window.Keep = s.sizes.keep; s.window.Keep {
		share = s.sizes.window // batches in hand leave room for all others
	}
	s.tune()
	s.planner = &planner.Planner{
		Shards: &shards{inputs: s.inputs, first: first, opts: &s.opts}, Sources: s.sources(), Levels: levels,
		Window: s.window, Clock: &s.clock, Ahead: s.tuning.ahead, Load: &s.tuning.load,
		Limit: s.sizes.memory, Share: share, Local: s.flow.flight == nil,
		Fetches: s.flow.fetches,
	}
	if s.opts.Log != nil {
		epoch := s.place.Epoch // read it first, because Next moves it
		s.life.wg.Go(func() { s.log(s.life.ctx, epoch) })
	}
	for range s.sizes.workers {
		s.life.wg.Go(func() { s.work(s.life.ctx) })
	}
	s.begin(of)
}

// begin begins a leg: it plans and assembles the batches of an order.
func (s *Stream) begin(of planner.Order) {
	var ctx context.Context
	ctx, s.leg.cancel = context.WithCancelCause(s.life.ctx)
	drafts, ready := make(chan *planner.Draft, s.sizes.ahead), make(chan assembled, s.sizes.queue)
	s.planner.Order, s.planner.Drafts, s.leg.drafts, s.leg.ready = of, drafts, drafts, ready
	s.leg.wg.Go(func() { s.planner.Run(ctx) })
	s.leg.wg.Go(func() { s.assemble(ctx, drafts, ready) })
}

// number numbers the data sets of the stream. It returns the number of the first data set of each
// source, and how many a sample has at most.
func (s *Stream) number() (first []int, levels int) {
	plain := true
	first = make([]int, len(s.inputs))
	for source, in := range s.inputs {
		if in.Dataset == nil {
			continue
		}
		first[source] = len(s.parts)
		for i := range in.parts {
			s.parts, s.picks = append(s.parts, &in.parts[i]), append(s.picks, in.parts[i].pick)
		}
		levels, plain = max(levels, len(in.parts)), plain && in.plain()
	}
	if plain {
		s.picks = nil
	}
	return first, levels
}

// sources returns the sources for the planner.
func (s *Stream) sources() []planner.Source {
	out := make([]planner.Source, len(s.inputs))
	for i, in := range s.inputs {
		if in.Dataset != nil && in.plan != nil { // else it gives nothing
			_, wanted := in.pieces(s.sizes.pieces[i])
			kept, _ := in.kept(s.flow.flight == nil)
			first := s.sizes.pieces[i]
			if in.plan.Params().Shuffle {
				first = 1
			}
			out[i] = planner.Source{
				PieceBlocks: s.sizes.pieces[i], FirstBlocks: first, Wanted: wanted,
				SampleBytes: int64(kept / float64(max(in.tables.Samples, 1))),
			}
		}
	}
	return out
}

// work is one worker: it fills pieces. If the store is local, it takes a turn for reading, too.
func (s *Stream) work(ctx context.Context) {
	at := account.NewWorker(&s.clock, nil)
	if s.tuning.meters != nil {
		at = account.NewWorker(&s.clock, s.tuning.meters)
	}
	w := window.Filler{Window: s.window, Worker: fetch.Worker{
		Flight: s.flow.flight, KeepGoing: true, Account: at, Rereads: func() { s.count.rereads.Add(1) },
	}}
	ctx = objstore.WithTracer(ctx, at)
	for {
		select {
		case p, more := <-s.flow.fetches:
			if !more || !s.tuning.gate.Enter(ctx) {
				return
			}
			if w.Flight == nil {
				var err error
				if w.Scratch, err = s.tuning.turns.Take(ctx); err != nil {
					return
				}
			}
			for next := p; next != nil; {
				p, next = next, next.Note.Next // once it has landed, it may be used again
				at.Begin(&p.Piece)
				if w.Fill(ctx, p) {
					s.count.blocks.Add(uint64(p.Blocks))
					s.count.stored.Add(uint64(p.Plan.Stored))
				}
				at.At(account.Landed)
				if p.Land() {
					tune.Signal(s.flow.landing)
				}
			}
			if w.Flight == nil {
				s.tuning.turns.Done(w.Scratch)
			}
			s.tuning.gate.Leave()
			// With a worker on every processor, nobody else runs until one has nothing to do. Let the
			// assembler and the consumer run now: they take microseconds, a piece milliseconds.
			runtime.Gosched()
		case <-ctx.Done():
			return
		}
	}
}

// assemble turns drafts into batches, in order.
func (s *Stream) assemble(ctx context.Context, drafts <-chan *planner.Draft, ready chan<- assembled) {
	defer close(ready)
	a := assemble.Assembler{Window: s.window, Clock: &s.clock, Landing: s.flow.landing, Skip: s.skip}
	for d := range drafts {
		out := assembled{err: d.Err}
		if d.Err == nil {
			out.Batch = s.newBatch(d)
			out.err = out.fill(ctx, &a)
		}
		if d.Err == nil && d.Copied {
			s.window.Urgent(false) // it waits for this one: the next need not be copied before it asks
		}
		if !s.hand(ctx, out, ready) || out.err != nil {
			return
		}
	}
}

// hand hands a batch to the consumer, who owns it from here on. It returns false when ctx has
// ended.
func (s *Stream) hand(ctx context.Context, out assembled, ready chan<- assembled) bool {
	s.clock.Hand(1)
	select {
	case ready <- out:
		return true
	case <-ctx.Done():
		s.drop(out)
		return false
	}
}

// skip decides about a sample of a damaged block: if it returns nil, the sample is left out.
func (s *Stream) skip(p *window.Piece, r *order.Ref, cause error) error {
	in := s.inputs[r.Source]
	cause = s.parts[p.Source].failed(cause)
	if !s.opts.Faults.SkipCorrupt || !fetch.Proven(cause) {
		return in.failed(cause)
	}
	j := p.Job.Shard.BlockRange(p.Job.Block+int(r.Block)-p.First, 1)
	of, err := in.Shard(s.life.ctx, j.Shard.Number) // the ledger has blocks of the data set itself
	if err != nil {
		return in.failed(err)
	}
	return in.failed(s.ledger.Skip(ledger.Block{
		Source: in.name, Shard: of.Name, Block: j.Block, First: j.First, Samples: uint64(j.Shard.Rows[j.From].Samples),
		Reason: cause.Error(),
	}, cause))
}

// Stream opens a stream over the run. Options that choose the order are ignored, because the run
// has an order. The caller must Close the stream before closing the run and its data sets. The
// context is for opening alone.
func (r *Run) Stream(ctx context.Context, o StreamOptions) (*Stream, error) {
	if o.GlobalBatch == 0 {
		o.GlobalBatch = r.globalBatch
	}
	o, err := o.filled(r.inputs)
	if err != nil {
		return nil, optionsError{err}
	}
	o.costs = r.costs
	s := &Stream{
		inputs: r.inputs, opts: o, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World},
		place: place{Place: r.begin}, lengths: r.info().Lengths,
	}
	s.run.Store(r)
	if err := s.useRows(ctx); err != nil {
		return nil, err
	}
	if r.inputs[0].name != "" {
		for _, in := range r.inputs {
			s.count.sources = append(s.count.sources, stats.Source{Name: in.name})
		}
	}
	s.scope(context.WithoutCancel(ctx))
	var cuts []uint64
	if o.Shards != [2]int{} {
		if s.place.Position, cuts, err = r.within(ctx, o.Shards, &o); err != nil {
			s.leave(err)
			return nil, optionsError{err}
		}
	}
	cursor, err := r.Seek(s.life.ctx, s.place.Place, s.split)
	if err == nil {
		cursor.cuts = cuts
	}
	if err != nil {
		s.leave(err)
		return nil, err
	}
	s.start(cursor)
	return s, nil
}
