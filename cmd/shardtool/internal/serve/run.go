package serve

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
)

// errPipe is the error of a write to a socket that nobody reads any more.
var errPipe = unix.EPIPE

// run is a stream being delivered: all batches from one START on.
type run struct {
	s       *server
	id      uint64
	stream  *reader.Stream
	asks    StartRequest
	begun   Started // what Options.Stream filled in
	tuning  *TuningRequest
	ahead   uint64 // batches made ahead of the one asked for
	parcel  parcel
	skipped uint64 // samples of the ledger as the parent knows it
	account account
	spare   spare
	unwatch func()
	close   func() // of the stream, and what it stands on

	// asked is one more than the number of the batch that the parent waits for.
	asked  atomic.Uint64
	next   atomic.Uint64 // number of the next batch
	sent   []*region     // the batches that the parent has not said to have taken; the ring locks it
	token  chan struct{} // the parent asked
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start ends the run before and begins another.
func (s *server) start(ctx context.Context, id uint64, body []byte) error {
	var q StartRequest
	if err := decodeBody(body, &q); err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	if s.data == nil {
		return protocolError("a START before OPEN")
	}
	cols := newColumns(q.Columns)
	r := &run{s: s, id: id, asks: q, tuning: &q.Tuning, token: make(chan struct{}, 1), unwatch: func() {}}
	if !r.takeOver() {
		s.stopRun()
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	s.ring.limit(int(q.Tuning.Ring))
	r.skipped, r.spare.set = r.stream.Stats().Skipped, r.stream.Waits
	r.goAhead(aheadBytes)
	r.parcel.columns, r.account.stream = cols, r.stream
	r.parcel.micro = q.Order.MicroBatches
	r.parcel.accountSize = accountSize(len(r.stream.Stats().Sources))
	cols.rows(r.stream.Info().Rows)
	ctx, r.cancel = context.WithCancel(ctx)
	s.run.Store(r) // before STARTED, which NEXT may follow at once
	var err error
	if r.parcel.units, err = newUnitColumns(q.Units, len(cols.made), r.stream); err != nil {
		s.stopRun()
		return err
	}
	if s.opts.Watch != nil {
		r.unwatch = s.opts.Watch(r, r.begun.Rank)
	}
	out := r.begun
	if err := r.started(ctx, &out); err != nil {
		s.stopRun()
		return err
	}
	r.done.Go(func() { r.run(ctx) })
	return nil
}

// open opens the stream of a run.
func (r *run) open(ctx context.Context) error {
	out, q := &r.begun, &r.asks
	*out = Started{Samples: r.s.data.samples(), Close: func() {}}
	stream, err := r.s.opts.Stream(ctx, r.s.data, q, out)
	if err != nil {
		return err
	}
	r.stream, r.close = stream, func() {
		stream.Close()
		out.Close()
	}
	if q.Resume.Weights != nil {
		if err := stream.SetWeights(q.Resume.Weights); err != nil {
			r.close()
			if errors.Is(err, reader.ErrOptions) {
				return configf("set_weights: %w", err)
			}
			return err
		}
	}
	return nil
}

// takeOver continues the stream of the run under way, if START asks for the same with other weights
// from a place of this run on: what is in memory stays. Otherwise it reports false. Blocks that
// were skipped are a reason, because ranks may count them together: then each run has those of all.
func (r *run) takeOver() bool {
	was, q := r.s.run.Load(), &r.asks.Resume
	if was == nil || q.Weights == nil || q.Begin != nil || r.asks.Faults.OnError == "skip" || !was.asks.same(&r.asks) {
		return false
	}
	at, err := reader.DecodeCheckpoint([]byte(q.Checkpoint))
	if err != nil {
		return false
	}
	was.cancel()
	was.done.Wait()
	r.s.ring.take(&was.sent, math.MaxUint64)
	if err := was.stream.SetWeightsAt(at, q.Weights); err != nil {
		return false
	}
	was.unwatch()
	r.stream, r.begun, r.close, r.account.origin = was.stream, was.begun, was.close, was.stream.Stats()
	return true
}

// started answers START.
func (r *run) started(ctx context.Context, out *Started) error {
	cp, err := r.stream.Checkpoint()
	if err != nil {
		return err
	}
	text, err := cp.Append(nil)
	if err != nil {
		return err
	}
	at := r.stream.Info()
	out.GlobalBatch, out.Tail, out.Memory, out.Checkpoint = at.GlobalBatch, string(at.Tail), at.Memory, string(text)
	out.CostHash, out.CostGroup = at.CostHash, at.CostGroup
	if at.Lengths.Lost() != "" {
		out.Lengths = &at.Lengths
	}
	if cp.Mix != nil && cp.Mix.Steered {
		if _, out.End, err = r.stream.Extent(ctx, nil); err != nil {
			return err
		}
	}
	for _, of := range r.stream.Stats().Sources {
		out.Sources = append(out.Sources, of.Name)
	}
	if err := r.parcel.units.started(ctx, r.stream, out); err != nil {
		return err
	}
	return r.s.sendJSON(kindStarted, r.id, out)
}

// stopRun ends the current run, if there is one. Its batches are the parent's until they are
// released.
func (s *server) stopRun() {
	r := s.run.Swap(nil)
	if r == nil {
		return
	}
	r.cancel()
	r.done.Wait()
	s.ring.take(&r.sent, math.MaxUint64)
	r.unwatch()
	r.close()
}

// Stats returns what the stream has done, what the parent has got of it, and what it has waited
// for.
func (r *run) Stats() stats.Stream { return r.account.stats() }

// ask notes that the parent waits for a batch, and has taken those before it.
func (r *run) ask(number uint64) {
	r.s.ring.take(&r.sent, number)
	r.account.mu.Lock()
	if r.asked.Store(number + 1); r.awaited() {
		r.account.begin()
	}
	r.spare.waits(r.awaited())
	r.account.mu.Unlock()
	signal(r.token)
}

// awaited reports whether the parent waits for the next batch.
func (r *run) awaited() bool { return r.asked.Load() > r.next.Load() }

// run delivers all batches. Then it answers each request for another batch with how they ended. A
// run that was stopped answers nothing.
func (r *run) run(ctx context.Context) {
	err := r.deliver(ctx)
	for ctx.Err() == nil {
		for !r.awaited() {
			select {
			case <-r.token:
			case <-ctx.Done():
				return
			}
		}
		if r.answer(err) != nil {
			return // the parent is gone
		}
	}
}

// answer tells the parent, which waits, why no batch comes.
func (r *run) answer(err error) error {
	if err := r.beat(0); err != nil { // report what the parent waited for
		return err
	}
	next := r.next.Load()
	r.account.mu.Lock()
	r.asked.Store(next) // first: it may ask again as soon as it has the answer
	r.account.end()
	r.account.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return r.s.send(newFrame(kindEnd, 0, 0).set64(8, r.id).set64(16, next), nil)
	}
	return r.s.fail(kindStart, r.id, err)
}

// beat sends a sign of life, with the account.
func (r *run) beat(waited time.Duration) error {
	stats := r.Stats()
	body := appendAccount(nil, &stats)
	f := newFrame(kindHeartbeat, 0, len(body)).set64(8, r.id).set64(16, uint64(waited.Milliseconds()))
	return r.s.send(f.set64(24, stats.Blocks).set64(32, stats.StoredBytes), body)
}

// By default aheadLeast batches are made ahead of the parent, and more small ones: up to
// aheadBytes, at most maxPrefetch. All together take a quarter of the ring at most, but one is
// always made ahead. To wake up takes a process as long as a small batch does, so with few of them
// both processes waited for each other: batches of 256 KiB came a quarter faster with 16 than with
// 4.
const aheadLeast, aheadBytes = 4, 8 << 20

// goAhead sets how many batches of that many bytes are made ahead.
func (r *run) goAhead(size int) {
	fit := max(int(r.tuning.Ring/4)/size, 1)
	n := min(max(aheadBytes/size, aheadLeast), fit, maxPrefetch)
	if r.tuning.Prefetch != nil {
		n = *r.tuning.Prefetch
	}
	r.ahead = uint64(n)
}

// deliver sends batch after batch. It ends with the first error, which is io.EOF at the end of the
// stream.
func (r *run) deliver(ctx context.Context) error {
	for {
		for r.next.Load() >= r.asked.Load()+r.ahead {
			r.spare.rest()
			select {
			case <-r.token:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b, err := r.stream.Next(ctx)
		if err != nil {
			return err
		}
		if err := r.batch(ctx, b); err != nil {
			return err
		}
	}
}

// batch puts one batch into the ring and sends it.
func (r *run) batch(ctx context.Context, b *reader.Batch) error {
	p := &r.parcel
	p.batch = b
	cp, err := b.Checkpoint()
	if err != nil {
		return err
	}
	if p.checkpoint, err = cp.Append(p.checkpoint[:0]); err != nil {
		return err
	}
	flags := uint16(0)
	if p.ledger = nil; b.SkippedSamples() != r.skipped {
		if p.ledger, err = ledger.Append(nil, r.stream.Skipped()); err != nil {
			return err
		}
		r.skipped, flags = b.SkippedSamples(), flagLedger
	}
	if b.Last() {
		flags |= flagLast
	}
	reg, err := r.fill(ctx, b)
	if err != nil {
		return err
	}
	f := reg.in(newFrame(kindBatch, flags, 0)).set64(8, r.next.Load()).set32(20, uint32(b.Len()))
	f = f.set64(40, b.Epoch).set64(48, b.NextEpoch).set64(56, b.NextPosition)
	b.Release()
	r.goAhead(len(reg.data))
	r.s.ring.sent(&r.sent, reg, r.next.Load())
	r.account.mu.Lock()
	r.next.Add(1)
	r.account.end()
	r.spare.waits(r.awaited())
	r.account.mu.Unlock()
	return r.s.send(f, nil)
}

// fill puts a batch into a region.
func (r *run) fill(ctx context.Context, b *reader.Batch) (reg *region, err error) {
	p := &r.parcel
	if err := p.gather(ctx, r.stream, b); err != nil {
		return reg, r.place(ctx, err)
	}
	if err := p.plan(); err != nil {
		return reg, err
	}
	if reg, err = r.room(ctx, p.size); err != nil {
		return reg, err
	}
	stats := r.account.made()
	p.account = appendAccount(p.account[:0], &stats)
	if err = p.write(reg.data); err != nil {
		_ = r.s.ring.release(reg.segment, reg.offset)
	}
	return reg, err
}

// place adds source, shard and block to an error of a sample.
func (r *run) place(ctx context.Context, err error) error {
	of, ok := errors.AsType[*decodeError](err)
	if !ok {
		return err
	}
	d := r.stream.Info().Sources[of.source]
	if at, failed := d.Locate(ctx, of.number); failed == nil {
		if shard, failed := d.Shard(ctx, at.Shard); failed == nil {
			err = format.Place{Shard: shard.Name, Block: at.Block, Offset: -1}.Wrap(err) // err has the key
		}
	}
	if stats := r.stream.Stats(); len(stats.Sources) > 0 {
		err = &mix.SourceError{Source: stats.Sources[of.source].Name, Err: err}
	}
	return err
}

// room takes a region for a batch. It waits while what is ahead of the parent leaves no room. A
// parent that asks has taken all of it.
func (r *run) room(ctx context.Context, size int) (*region, error) {
	return r.s.ring.await(ctx, func() (*region, error) {
		reg, fits, err := r.s.ring.get(size)
		if err == nil && !fits {
			err = tooLarge(size)
		}
		return reg, err
	})
}

// tooLarge returns the error of a batch that is larger than all that may be ahead.
func tooLarge(size int) error {
	return configf("a batch of %d bytes does not fit into ring_memory: raise it, in Tuning(ring_memory=...): %w", size,
		format.ErrTooLarge)
}
