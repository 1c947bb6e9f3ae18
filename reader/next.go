package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/reader/order"
)

// place is where the consumer of a stream is.
type place struct {
	epoch, position uint64 // after the last batch delivered
	last            *Batch
	err             error     // sticks
	returned        time.Time // of the last Next
}

// delivered counts what a stream has done. The counters of blocks may be read at any time; mu guards
// the others.
type delivered struct {
	blocks, stored, rereads, decisions atomic.Uint64

	mu                      sync.Mutex
	batches, samples, bytes uint64
	held                    int  // batches delivered and not released
	waiting                 bool // Next waits
	firstWait               time.Duration
	ended                   time.Duration // lifetime, set by Close; 0 while open
	skipped                 ledgerMark    // after the last batch delivered
	sources                 []SourceStats // of a mix
	idle                    []*batchMemory
}

// end records the lifetime of the stream.
func (c *delivered) end(after time.Duration) {
	c.mu.Lock()
	c.ended, c.idle = after, nil
	c.mu.Unlock()
}

// first reports whether no batch has been delivered.
func (c *delivered) first() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches == 0
}

// Next returns the next batch, or io.EOF after the last. The batch before it is released unless
// StreamOptions.Hold is set. An error sticks, except for that of ctx and ErrHeld. All batches before
// an error have been delivered, and the batch with the error delivers nothing.
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
	held := s.wait(true)
	defer s.wait(false)
	if s.opts.Hold > 0 && held >= s.opts.Hold {
		return nil, fmt.Errorf("reader: %w: %d are held and none was released; call Release on them, or raise Hold", ErrHeld, held)
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
	default:
		s.deliver(out.Batch)
		return out.Batch, nil
	}
	return nil, s.place.err
}

// wait tells whether the consumer waits for a batch. It returns how many batches are held.
func (s *Stream) wait(on bool) (held int) {
	s.count.mu.Lock()
	s.count.waiting = on
	held = s.count.held
	s.count.mu.Unlock()
	s.window.Urgent(on)
	return held
}

// receive takes the next assembled batch; more is false after the last. An error is that of ctx.
func (s *Stream) receive(ctx context.Context, asked time.Time) (out assembled, more bool, err error) {
	select {
	case out, more = <-s.flow.ready:
	default:
		s.clock.Begin(asked)
		select {
		case out, more = <-s.flow.ready:
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

func (s *Stream) deliver(b *Batch) {
	c := &s.count
	c.mu.Lock()
	c.held++
	c.skipped = b.skipped
	if c.batches++; c.batches == 1 {
		c.firstWait = s.clock.Totals().Sum()
	}
	c.samples += uint64(b.counts.Samples)
	c.bytes += uint64(b.counts.Bytes)
	for i := range c.sources {
		c.sources[i].Samples += b.memory.sources[i].Samples
		c.sources[i].Bytes += b.memory.sources[i].Bytes
	}
	c.mu.Unlock()
	s.tuning.ahead.Deliver()
	s.place.epoch, s.place.position, s.place.last = b.NextEpoch, b.NextPosition, b
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

// Checkpoint returns the place after the last batch that Next returned, whatever has been read ahead.
// Ranks at the same step have the same place. SkipHash and Skipped are those of this rank; Merge
// unites them. Of a mix, use MixCheckpoint.
func (s *Stream) Checkpoint() (order.Checkpoint, error) {
	return s.checkpoint(s.place.epoch, s.place.position, s.skippedMark())
}

// skippedMark is the ledger after the last batch delivered.
func (s *Stream) skippedMark() ledgerMark {
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return s.count.skipped
}

func (s *Stream) checkpoint(epoch, position uint64, skipped ledgerMark) (order.Checkpoint, error) {
	if s.mix != nil {
		return order.Checkpoint{}, errMixed
	}
	in := s.inputs[0]
	cp, err := in.plan.Checkpoint(epoch, position)
	if err != nil {
		return cp, err
	}
	cp.GlobalBatch, cp.Tables = s.split.GlobalBatch, in.Tables()
	cp.SkipHash, cp.Skipped = skipped.hash, skipped.samples
	return cp, nil
}
