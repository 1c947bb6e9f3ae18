package writer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Writer writes one generation of a data set. Its methods are for one goroutine. The first error sticks.
type Writer struct {
	store objstore.Store
	opt   Options
	// cursor and fingerprint are the source's, when Pack drives; see META in SPEC 4.6.
	cursor      func() string
	fingerprint string
	sourceMeta  format.Metadata

	prior    *format.Manifest // of the generation before; nil for the first
	priorTag objstore.Info    // of its manifest.json
	priorTab string

	cur         *block
	shardBytes  int64 // decoded, of the shard being laid out
	shardKeys   map[string]struct{}
	shardNumber int
	shardCursor string

	budget *budget
	free   chan *block
	work   chan *block
	order  chan *block
	cancel context.CancelCauseFunc
	ctx    context.Context
	group  sync.WaitGroup
	emit   *emitter

	given   int64 // samples that Write took
	skipped atomic.Int64
	closed  bool
	over    bool
}

// New begins a generation. It reads what is there: with Create a data set is ErrExists; Overwrite and Append remember which
// generation they follow, and Close publishes only if that is still the current one.
func New(ctx context.Context, store objstore.Store, opt Options) (*Writer, error) {
	return newWriter(ctx, store, opt, nil)
}

func newWriter(ctx context.Context, store objstore.Store, opt Options, src Source) (*Writer, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	w := &Writer{store: store, opt: opt, cursor: func() string { return "" }, shardKeys: map[string]struct{}{}}
	if src != nil {
		w.cursor, w.fingerprint, w.sourceMeta = src.Cursor, src.Fingerprint(), src.Meta()
	}
	if err := w.readPrior(ctx); err != nil {
		return nil, fmt.Errorf("writer: %v: %w", store, err)
	}
	w.start(ctx)
	return w, nil
}

// readPrior loads the generation that is there.
func (w *Writer) readPrior(ctx context.Context) error {
	sum, info, err := loadSummary(ctx, w.store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		if w.opt.Mode == Create {
			return fmt.Errorf("%w (and it cannot be read: %w)", ErrExists, err)
		}
		return err
	}
	if w.opt.Mode == Create {
		return fmt.Errorf("%w (generation %d, %d samples)", ErrExists, sum.Generation, sum.Samples)
	}
	w.prior, err = loadManifest(ctx, w.store, sum.Tables)
	w.priorTag, w.priorTab = info, sum.Tables
	return err
}

func (w *Writer) start(ctx context.Context) {
	// Work goes on when the context of New ends; each call brings its own.
	w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	w.budget = newBudget(w.opt.Memory)
	inFlight := 2*w.opt.Workers + 2
	w.free = make(chan *block, inFlight+1)
	w.work, w.order = make(chan *block, inFlight), make(chan *block, inFlight)
	pool := &buffers{free: make(chan []byte, inFlight)}
	w.emit = newEmitter(w, pool)
	for range w.opt.Workers {
		w.group.Go(func() {
			enc := &encoder{plain: w.opt.Plain, enc: format.NewEncoder(w.opt.Level), pool: pool}
			defer enc.enc.Close()
			for b := range w.work {
				var skip func(*SampleError)
				if w.opt.OnError == OnErrorSkip {
					skip = w.skip
				}
				b.process(w.ctx, enc, skip)
			}
		})
	}
	w.group.Go(w.emit.run)
}

// Generation is the number of the generation being written.
func (w *Writer) Generation() uint64 {
	if w.prior == nil {
		return 1
	}
	return w.prior.Generation + 1
}

// shardName is the object name of shard i of this generation.
func (w *Writer) shardName(i int) string {
	name := w.opt.Name
	if g := w.Generation(); g > 1 {
		name += fmt.Sprintf("-v%04d", g)
	}
	suffix := format.ZstdSuffix
	if w.opt.Plain {
		suffix = format.TarSuffix
	}
	return fmt.Sprintf("%s-%06d%s", name, i, suffix)
}

// Write adds a sample. Data has been copied when it returns; payloads may be read until Close returns. A *SampleError
// concerns this sample alone and is returned only with OnErrorFail.
func (w *Writer) Write(ctx context.Context, s Sample) error {
	if err := w.usable(); err != nil {
		return err
	}
	w.given++
	if err := w.check(&s); err != nil {
		se := &SampleError{Origin: s.Origin, Key: s.Key, Err: err}
		if w.opt.OnError == OnErrorSkip {
			w.skip(se)
			return w.usable()
		}
		w.fail(se)
		return se
	}
	if w.cur == nil {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	before := w.cur.size
	w.cur.add(&s)
	w.shardBytes += w.cur.size - before
	full := w.shardBytes >= w.opt.ShardSize || (w.opt.SamplesPerShard > 0 && int64(len(w.shardKeys)) >= w.opt.SamplesPerShard)
	if !full && w.cur.size < w.opt.BlockSize {
		return nil
	}
	return w.dispatch(ctx, full)
}

func (w *Writer) check(s *Sample) error {
	if err := checkSample(s); err != nil {
		return err
	}
	if _, twice := w.shardKeys[s.Key]; twice {
		return fmt.Errorf("%w key: it is in this shard already (%s)", format.ErrDuplicate, w.shardName(w.shardNumber))
	}
	w.shardKeys[s.Key] = struct{}{}
	return nil
}

func (w *Writer) begin(ctx context.Context) error {
	select {
	case w.cur = <-w.free:
	default:
		w.cur = &block{}
	}
	w.cur.reset()
	return ctx.Err()
}

// dispatch hands the current block on, and closes the shard behind it.
func (w *Writer) dispatch(ctx context.Context, endShard bool) error {
	b := w.cur
	w.cur = nil
	if endShard {
		end := w.cursor()
		b.end = &shardEnd{w.shardCursor, end}
		w.shardCursor = end
		w.shardNumber++
		w.shardBytes = 0
		clear(w.shardKeys)
	}
	return w.send(ctx, b, b.cost())
}

func (w *Writer) send(ctx context.Context, b *block, cost int64) error {
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(w.ctx, func() { stop(context.Cause(w.ctx)) })()
	taken, err := w.budget.take(wait, cost)
	if err == nil {
		b.taken = taken
		if b.adopt == nil {
			select {
			case w.work <- b:
			case <-wait.Done():
				err = wait.Err()
			}
		}
	}
	if err == nil {
		select {
		case w.order <- b:
			return nil
		case <-wait.Done():
		}
	}
	w.fail(context.Cause(wait))
	return w.usable()
}

// usable returns the error that sticks.
func (w *Writer) usable() error {
	if w.closed {
		return errors.New("writer: used after Close or Abort")
	}
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	return nil
}

// fail makes err stick and stops the pipeline.
func (w *Writer) fail(err error) {
	if err != nil {
		w.cancel(err)
	}
}

func (w *Writer) skip(e *SampleError) {
	n := w.skipped.Add(1)
	if w.opt.Skipped != nil {
		w.opt.Skipped(e)
	}
	if w.opt.MaxSkipped > 0 && n > w.opt.MaxSkipped {
		w.fail(fmt.Errorf("%w: %d, at most %d are allowed; the last: %w", ErrSkipped, n, w.opt.MaxSkipped, e))
	}
}

// Abort stops and leaves nothing visible but shards that nothing refers to. After Close it does nothing.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	w.cancel(errors.New("writer: aborted"))
	w.stop()
	return nil
}

// stop ends all goroutines.
func (w *Writer) stop() {
	w.closed = true
	close(w.work)
	close(w.order)
	w.group.Wait()
	w.emit.close()
}

// Close writes what is left, publishes the generation and returns what it holds. After an error nothing has been published.
func (w *Writer) Close(ctx context.Context) (*Result, error) {
	if w.closed {
		return nil, errors.New("writer: used after Close or Abort")
	}
	defer context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })()
	if w.cur == nil && w.shardBytes > 0 && context.Cause(w.ctx) == nil {
		if err := w.begin(ctx); err != nil { // the shard is open, its last block went already: close it with an empty one
			w.fail(err)
		}
	}
	if w.cur != nil && context.Cause(w.ctx) == nil {
		_ = w.dispatch(ctx, true) // a failure sticks
	}
	w.stop()
	if err := context.Cause(w.ctx); err != nil {
		return nil, err
	}
	res, err := w.publish(ctx)
	w.cancel(errors.New("writer: closed"))
	return res, err
}
