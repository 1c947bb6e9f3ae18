package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/shardtool/shardtool/internal/order/ledger"
)

// Next returns the next batch, or io.EOF after the last. The batch before it is released unless
// StreamOptions.Hold is set. An error sticks, except for the error of ctx and ErrHeld. All batches
// before an error have been delivered, and the batch with the error delivers nothing.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if s.place.err != nil {
		return nil, s.place.err
	}
	asked := time.Now()
	if !s.place.returned.IsZero() {
		s.tuning.meters.Stepped(asked.Sub(s.place.returned))
	}
	b, err := s.next(ctx, asked)
	s.place.returned = s.clock.End(asked)
	return b, err
}

func (s *Stream) next(ctx context.Context, asked time.Time) (*Batch, error) {
	if s.opts.Hold == 0 && s.place.last != nil {
		s.place.last.Release()
		s.place.last = nil
	}
	if s.opts.Hold > 0 {
		if held := s.held(); held >= s.opts.Hold {
			return nil, fmt.Errorf("%w: %d are held and none was released; call Release on them, or raise Hold",
				ErrHeld, held)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out, more, err := s.receive(ctx, asked)
	switch {
	case err != nil:
		return nil, err
	case s.life.ctx.Err() != nil: // closed, and the batch's memory is freed
		s.place.err = context.Cause(s.life.ctx)
	case !more:
		s.place.err = io.EOF
	case out.err != nil:
		s.place.err = out.err
	case !s.deliver(out.Batch): // closed in this moment
		s.place.err = context.Cause(s.life.ctx)
	default:
		return out.Batch, nil
	}
	return nil, s.place.err
}

// held returns the number of batches held.
func (s *Stream) held() int {
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return s.count.held
}

// wait records whether the consumer waits for a batch.
func (s *Stream) wait(on bool) {
	s.count.mu.Lock()
	s.count.waiting = on
	s.count.mu.Unlock()
	s.window.Urgent(on)
	if !s.tuning.told.Load() {
		s.help(on)
	}
}

// help starts or stops the spare workers. They finish the piece that they are decoding.
func (s *Stream) help(on bool) {
	n := s.opts.Tuning.Workers
	if on {
		n += s.opts.Tuning.Spare
	}
	if s.opts.Tuning.Spare > 0 {
		s.tuning.turns.Gate.Set(n)
	}
}

// Waits is for callers of Next that take batches ahead for another consumer. on tells whether that
// consumer waits. From the first call on, Tuning.Spare workers help while it waits, and not while
// Next waits. It may be called from any goroutine.
func (s *Stream) Waits(on bool) {
	s.tuning.told.Store(true)
	s.help(on)
}

// receive takes the next assembled batch; more is false after the last. The error is the error of
// ctx.
func (s *Stream) receive(ctx context.Context, asked time.Time) (out assembled, more bool, err error) {
	select {
	case out, more = <-s.leg.ready:
	default:
		s.clock.Begin(asked)
		s.wait(true)
		defer s.wait(false)
		select {
		case out, more = <-s.leg.ready:
		case <-s.life.ctx.Done():
		case <-ctx.Done():
			return out, false, context.Cause(ctx)
		}
		if !s.count.first() && s.tuning.ahead.Kept() { // a greater depth might have avoided the wait
			s.tuning.meters.Waited(time.Since(asked))
		}
	}
	if more {
		s.clock.Hand(-1)
	}
	return out, more, nil
}

// deliver hands a batch to the consumer. It returns false after Close, which frees all batches that
// the consumer does not hold.
func (s *Stream) deliver(b *Batch) bool {
	c := &s.count
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended > 0 {
		return false
	}
	c.held++
	c.skipped = b.skipped
	if c.batches++; c.batches == 1 {
		c.firstWait = s.clock.Totals().Sum()
	}
	c.samples += uint64(b.held.Samples)
	c.bytes += uint64(b.held.Bytes)
	for i := range c.sources {
		c.sources[i].Samples += b.memory.sources[i].Samples
		c.sources[i].Bytes += b.memory.sources[i].Bytes
	}
	s.tuning.ahead.Deliver()
	s.place.Place, s.place.last = Place{b.NextEpoch, b.NextPosition}, b
	return true
}

// Batches iterates over all batches. It ends at the end of the stream, or after an error.
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

// Skipped returns the blocks whose samples were left out of the batches delivered so far, including
// StreamOptions.Skipped, by shard and block. It may be called from any goroutine.
func (s *Stream) Skipped() []ledger.Block { return s.ledger.Blocks(s.skippedMark()) }
