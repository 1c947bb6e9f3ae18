package reader

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/units"
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
	inputs  []*input // of the run
	run     atomic.Pointer[Run]
	opts    StreamOptions
	split   order.Split
	sizes   sizes
	clock   account.Clock
	window  *window.Window
	from    []*origin        // by source
	parts   []*part          // the data sets of all sources, by their numbers
	picks   []*assemble.Pick // of the parts; nil where all fields are delivered
	planner *planner.Planner
	tuning  tuning
	ledger  *ledger.Ledger
	lengths units.Summary   // StreamInfo.Lengths
	rows    *stacked.Layout // of batches that are arrays; nil where they have samples
	flow    flow
	place   place     // owned by the consumer's goroutine
	count   delivered // what was delivered
	life    lifetime
	leg     leg
}

// leg is the planning and assembling of the batches from a place on. Another one begins where
// weights are set.
type leg struct {
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	drafts chan *planner.Draft
	ready  chan assembled
}

// flow is the channels between the goroutines of a stream.
type flow struct {
	fetches chan *window.Piece
	landing chan struct{} // holds a token when the piece has landed that the assembler waits for
	flight  *fetch.Flight // of a remote store
}

// lifetime is when a stream began, and how it ends.
type lifetime struct {
	opened time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	ends   []func()
	wg     sync.WaitGroup
	once   sync.Once
	turn   sync.Mutex // held where a leg follows another, and where all ends
}

// scope makes the context that ends with the stream or with one of its data sets.
func (s *Stream) scope(ctx context.Context) {
	l := &s.life
	l.ctx = ctx
	for _, in := range s.inputs {
		if in.Dataset == nil {
			continue
		}
		for i := range in.parts {
			var end func()
			l.ctx, end = in.parts[i].catalog.Scope(l.ctx)
			l.ends = append(l.ends, end)
		}
	}
	l.ctx, l.cancel = context.WithCancelCause(l.ctx)
}

// pool returns the decoders for the workers, the pool of any of the data sets.
func (s *Stream) pool() *fetch.ScratchPool {
	i := slices.IndexFunc(s.inputs, func(in *input) bool { return in.Dataset != nil })
	return &s.inputs[i].pool
}

// assembled is a batch, or the error that ends the stream.
type assembled struct {
	*Batch
	err error
}

// errStreamClosed is returned by Next after Close.
var errStreamClosed = fmt.Errorf("the stream is closed: %w", fs.ErrClosed)

// Close ends the stream. It may be called from any goroutine, and more than once. Batches that were
// not released stay valid, because the samples or the batch keep their memory. Release them before
// Close, or later, to let the memory be used again at once. A Next that waits returns an error that
// wraps fs.ErrClosed. All goroutines have ended when Close returns, so it waits for calls of Map.
func (s *Stream) Close() error {
	s.leave(errStreamClosed)
	s.life.once.Do(func() {
		s.tuning.ask(0)
		s.window.Close(s.count.end(time.Since(s.life.opened)))
	})
	return nil
}

// leave ends the goroutines of the stream and frees what its data sets hold for it.
func (s *Stream) leave(cause error) {
	s.life.cancel(cause)
	s.life.turn.Lock()
	defer s.life.turn.Unlock()
	s.leg.wg.Wait()
	s.life.wg.Wait()
	for _, end := range slices.Backward(s.life.ends) {
		end()
	}
}

// place is where the consumer of a stream is.
type place struct {
	Place    // after the last batch delivered
	last     *Batch
	err      error     // sticks
	returned time.Time // of the last Next
}

// delivered counts what a stream has done. The counters of blocks may be read at any time; mu
// guards the others.
type delivered struct {
	blocks, stored, rereads, decisions atomic.Uint64

	mu                      sync.Mutex
	batches, samples, bytes uint64
	held                    int  // batches delivered and not released
	waiting                 bool // Next waits
	firstWait               time.Duration
	ended                   time.Duration  // lifetime, set by Close; 0 while open
	skipped                 ledger.Mark    // after the last batch delivered
	sources                 []stats.Source // of a mix
	idle                    []*batchMemory
}

// end records the lifetime of the stream. It reports whether batches are in hand: the Release of
// the last one then frees the window.
func (c *delivered) end(after time.Duration) (inHand bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.idle = after, nil
	return c.held > 0
}

// first reports whether no batch has been delivered.
func (c *delivered) first() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches == 0
}

// skippedMark returns the state of the ledger after the last batch delivered.
func (s *Stream) skippedMark() ledger.Mark {
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return s.count.skipped
}

// Checkpoint returns the place after the last batch that Next returned, whatever has been read
// ahead. Ranks at the same step have the same place. The checkpoint has the samples that this rank
// skipped; ledger.Merge unites the ranks.
func (s *Stream) Checkpoint() (Checkpoint, error) {
	return s.run.Load().Checkpoint(s.place.Place, s.split.GlobalBatch, s.skippedMark())
}

// Extent returns how many samples or units the epoch has in which the batch after b begins, or with
// a nil b the first one: 0 after the last epoch. It also returns the position where the stream of a
// mix ends, 2^63 where it has no end, and 0 for one data set.
func (s *Stream) Extent(ctx context.Context, b *Batch) (length, ends uint64, err error) {
	run := s.run.Load()
	at, end := run.begin.Epoch, uint64(order.MaxEpochs)
	if b != nil {
		at, end = b.NextEpoch, min(end, cmp.Or(run.end, end))
	}
	if at < end {
		length, err = run.length(ctx, at)
	}
	if err == nil {
		ends, err = run.ends()
	}
	return length, ends, err
}

// Info returns what the stream reads, and in which order.
func (s *Stream) Info() StreamInfo {
	i := s.run.Load().Info()
	i.GlobalBatch, i.Memory = s.split.GlobalBatch, s.sizes.memory
	if s.rows != nil {
		i.Rows = rowFields(s.rows)
	}
	return i
}
