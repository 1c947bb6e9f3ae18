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
	store   objstore.Store
	puts    *puts
	release func() // gives back the store's lock; once is enough, twice does no harm
	opt     Options
	// cursor and fingerprint are the source's, when Pack drives; see META in SPEC 4.6.
	cursor      func() string
	fingerprint string
	sourceMeta  format.Metadata
	// common, when not nil, is the metadata that the parts being committed share: it stands for that of this run.
	common format.Metadata

	prior    *format.Manifest // of the generation before; nil for the first
	priorTag objstore.Info    // of its manifest.json
	priorTab string

	cur         *block
	shardBytes  int64 // decoded, of the shard being laid out
	shardKeys   keySet
	shardNumber int
	shardCursor string
	// shardSkipped counts samples of the shard that Write and the source left out.
	shardSkipped int64
	// left and unlisted are those left out since the block before; leftBytes is how much they take.
	left      []leftOut
	leftBytes int
	unlisted  int64
	attrs     map[string]format.AttrKind // of all samples so far

	budget *budget
	free   chan *block
	pace   *pace
	read   chan *block
	work   chan *block
	order  chan *block
	cancel context.CancelCauseFunc
	ctx    context.Context
	group  sync.WaitGroup
	emit   *emitter

	skipped atomic.Int64
	closed  bool
}

// New begins a generation. It reads what is there: with Create a data set is ErrExists; Overwrite and Append remember which
// generation they follow, and Close publishes only if that is still the current one.
func New(ctx context.Context, store objstore.Store, opt Options) (*Writer, error) {
	w, err := prepare(ctx, store, opt, nil)
	if err == nil {
		w.start(ctx)
	}
	return w, err
}

// prepare makes a Writer whose goroutines do not run yet. Whoever does not end it by Close or Abort
// calls release.
func prepare(ctx context.Context, store objstore.Store, opt Options, src Source) (*Writer, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	w := &Writer{store: store, puts: newPuts(store), opt: opt, cursor: func() string { return "" }, attrs: map[string]format.AttrKind{}}
	if src != nil {
		w.cursor, w.fingerprint, w.sourceMeta = src.Cursor, src.Fingerprint(), src.Meta()
	}
	if w.release, err = hold(ctx, store, opt.describe(), opt.Log); err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	if err := w.readPrior(ctx); err != nil {
		w.release()
		return nil, fmt.Errorf("writer: %v: %w", store, err)
	}
	return w, nil
}

// readPrior loads the generation that is there.
func (w *Writer) readPrior(ctx context.Context) error {
	sum, info, err := loadSummary(ctx, w.store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// Only an object that was read and makes no sense is a data set in the way; a bucket that
		// is missing or a server that refuses is not.
		if damaged := errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) || errors.Is(err, objstore.ErrTooLarge); damaged && w.opt.Mode == ModeCreate {
			return fmt.Errorf("%w (and it cannot be read: %w)", ErrExists, err)
		}
		return err
	}
	exists := fmt.Errorf("%w (generation %d, %d samples)", ErrExists, sum.Generation, sum.Samples)
	if w.opt.Mode == ModeCreate && !w.opt.Resume {
		return exists
	}
	w.prior, err = loadManifest(ctx, w.store, sum.Tables)
	w.priorTag, w.priorTab = info, sum.Tables
	if err == nil && w.opt.Mode == ModeCreate && !w.finished() {
		return exists
	}
	if err == nil && w.opt.Mode == ModeAppend { // a part's attributes, too, must go with those before
		for _, a := range w.prior.Attributes {
			w.attrs[a.Name] = a.Kind
		}
	}
	return err
}

func (w *Writer) start(ctx context.Context) {
	// Work goes on when the context of New ends; each call brings its own.
	w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	w.budget = newBudget(w.opt.Memory)
	w.pace = newPace(w.opt.Workers)
	near, far := w.pace.most()
	w.free = make(chan *block, near+1)
	// The pace bounds what is in them: sending never waits.
	w.read, w.work, w.order = make(chan *block, far), make(chan *block, far), make(chan *block, far)
	pool := &buffers{free: make(chan []byte, near)}
	w.emit = newEmitter(w, pool)
	w.emit.put = newPutter(w)
	var skip func(*SampleError)
	if w.opt.OnError == OnErrorSkip {
		skip = w.skip
	}
	for range w.pace.readers() {
		w.group.Go(func() {
			for b := range w.read {
				b.readPayloads(w.ctx, w.pace, skip)
			}
		})
	}
	for range w.opt.Workers {
		w.group.Go(func() {
			enc := &encoder{plain: w.opt.Plain, enc: format.NewEncoder(w.opt.Level), pool: pool}
			defer enc.enc.Close()
			for b := range w.work {
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
	suffix := format.ZstdSuffix
	if w.opt.Plain {
		suffix = format.TarSuffix
	}
	prefix := shardPrefix(w.opt.Name, w.Generation())
	if w.opt.parts > 0 {
		prefix = partPrefix(w.opt.Name, w.Generation(), w.opt.part)
	}
	return fmt.Sprintf("%s%06d%s", prefix, i, suffix)
}

// base is the generation whose shards come before ours in what is being written; nil where there is none.
func (w *Writer) base() *format.Manifest {
	if w.opt.Mode == ModeAppend && w.opt.parts == 0 {
		return w.prior
	}
	return nil
}

// shardPrefix begins the names of the shards that a generation adds.
func shardPrefix(name string, generation uint64) string {
	if generation > 1 {
		name += fmt.Sprintf("-v%04d", generation)
	}
	return name + "-"
}

// Write adds a sample. Data has been copied when it returns; payloads may be read until Close returns. A *SampleError
// concerns this sample alone and is returned only with OnErrorFail.
func (w *Writer) Write(ctx context.Context, s Sample) error {
	if err := w.usable(); err != nil {
		return err
	}
	if err := w.check(&s); err != nil {
		se := &SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err}
		if w.opt.OnError == OnErrorSkip {
			return w.leaveOut(se)
		}
		w.fail(se)
		return se
	}
	if w.cur == nil {
		if err := w.begin(ctx); err != nil {
			w.fail(err)
			return err
		}
	}
	before := w.cur.size
	w.cur.add(&s)
	w.shardBytes += w.cur.size - before
	full := w.shardBytes >= w.opt.ShardSize || (w.opt.SamplesPerShard > 0 && int64(w.shardKeys.len()) >= w.opt.SamplesPerShard)
	if !full && !w.opt.blockFull(w.cur.size, len(w.cur.samples)) {
		return nil
	}
	return w.dispatch(ctx, full)
}

func (w *Writer) check(s *Sample) error {
	if err := checkSample(s); err != nil {
		return err
	}
	if w.shardKeys.has(s.Key) {
		return fmt.Errorf("%w key: it is in this shard already (%s): rename one of the samples; a shard cannot hold both", format.ErrDuplicate, w.shardName(w.shardNumber))
	}
	for _, a := range s.Attrs {
		if err := sameKind(w.attrs, a.Attribute); err != nil {
			return err
		}
	}
	for _, a := range s.Attrs {
		w.attrs[a.Name] = a.Kind
	}
	w.shardKeys.add(s.Key)
	return nil
}

func sameKind(kinds map[string]format.AttrKind, a format.Attribute) error {
	if kind, ok := kinds[a.Name]; ok && kind != a.Kind {
		return fmt.Errorf("%w: attribute %q is a %v here and a %v in samples before", format.ErrMismatch, a.Name, a.Kind, kind)
	}
	return nil
}

func (w *Writer) begin(ctx context.Context) error {
	select {
	case w.cur = <-w.free:
	default:
		w.cur = &block{}
	}
	if w.cur.layout.Buf == nil { // room for a block and the end of its last sample, rather than growing step by step
		room := w.opt.BlockSize
		if w.opt.blockSamples > 0 { // few blocks of larger samples grow it
			room = leastBlock
		}
		w.cur.layout.Buf = make([]byte, 0, room+room/8)
	}
	w.cur.reset()
	return ctx.Err()
}

// dispatch hands the current block on, and closes the shard behind it.
func (w *Writer) dispatch(ctx context.Context, endShard bool) error {
	b := w.cur
	w.cur = nil
	b.left, b.unlisted = w.left, w.unlisted
	w.left, w.leftBytes, w.unlisted = nil, 0, 0
	if endShard {
		end := w.cursor()
		b.end = &shardEnd{cursorStart: w.shardCursor, cursorEnd: end, skipped: w.shardSkipped}
		w.shardCursor, w.shardSkipped = end, 0
		w.shardNumber++
		w.shardBytes = 0
		w.shardKeys.reset()
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
		err = w.pace.begin(wait)
	}
	if err == nil {
		if len(b.fills) > 0 {
			b.filled = make(chan struct{})
			w.read <- b
		}
		if b.adopt == nil {
			w.work <- b
		}
		w.order <- b
		return nil
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

// leaveOut skips a sample before it is laid out.
func (w *Writer) leaveOut(e *SampleError) error {
	w.shardSkipped++
	at := 0
	if w.cur != nil {
		at = len(w.cur.samples)
	}
	line := skippedLine(e)
	if w.leftBytes += len(line); w.leftBytes <= maxBlockList {
		w.left = append(w.left, leftOut{at, line})
	} else {
		w.unlisted++
	}
	w.skip(e)
	return w.usable()
}

// skip may be called from any goroutine.
func (w *Writer) skip(e *SampleError) {
	if w.opt.Skipped != nil {
		w.opt.Skipped(e)
	}
	w.countSkipped(1, e)
}

func (w *Writer) countSkipped(more int64, last error) {
	n := w.skipped.Add(more)
	if w.opt.MaxSkipped > 0 && n > w.opt.MaxSkipped {
		w.fail(fmt.Errorf("%w: %d, at most %d are allowed; the last: %w", ErrSkipped, n, w.opt.MaxSkipped, last))
	}
}

// Abort stops and leaves nothing visible but shards that nothing refers to. After Close it does nothing.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	defer w.release()
	w.cancel(errors.New("writer: aborted"))
	w.stop()
	w.emit.lists.close()
	return w.emit.keys.Close()
}

// stop ends all goroutines.
func (w *Writer) stop() {
	w.closed = true
	close(w.read)
	close(w.work)
	close(w.order)
	w.group.Wait()
	w.emit.close()
}

// Close writes what is left, publishes the generation and returns what it holds. After an error nothing has been published.
func (w *Writer) Close(ctx context.Context) (res *Result, err error) {
	err = w.end(ctx, func() (err error) {
		res, err = w.publish(ctx)
		return err
	})
	return res, err
}

// end writes what is left and has publish do the rest, when all goroutines have ended and all went well.
func (w *Writer) end(ctx context.Context, publish func() error) error {
	if w.closed {
		return errors.New("writer: used after Close or Abort")
	}
	defer w.release()
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
	defer w.emit.keys.Close()
	defer w.emit.lists.close()
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	err := publish()
	w.cancel(errors.New("writer: closed"))
	return err
}
