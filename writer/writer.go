package writer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/stacked"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/internal/stack"
)

// Writer writes one generation of a data set. Its methods are for one goroutine. The first error
// sticks.
type Writer struct {
	plan
	store   objstore.Store
	puts    *puts
	release func() // gives back the store's lock; may be called twice
	prior   current

	cursor func() string // of the source; see META in SPEC 4.6
	// meta is what the source adds to the generation's metadata. common, when not nil, replaces
	// that of this run: it is the metadata that the parts being committed share.
	meta, common format.Metadata

	layout  Layout // of samples from now on; not LayoutOfSource
	shard   shardLayout
	attrs   map[string]format.AttrKind // of all samples so far
	skipped atomic.Int64

	line   *pipeline // nil in a commit, which has no samples to write
	emit   *emitter
	sum    *totals
	closed bool
}

// shardLayout is the shard that samples are being added to.
type shardLayout struct {
	number int
	cursor string // of the source, where the shard begins
	cur    *block // the block being filled; nil between blocks
	laid   int64  // bytes laid out in the last block
	bytes  int64  // decoded
	keys   keySet // of an ordinary shard
	// stack is what the rows of a stacked shard are; nil in an ordinary one. last is that of the shard
	// before, samples the number of its samples so far, after the source's cursor after the last of
	// them.
	stack, last *stack.Stack
	keysAre     keysOf
	samples     int64
	after       string
	// skipped counts the samples that Write and the source left out. Those of left and unlisted
	// were left out since the last block; leftBytes is the length of the lines in left.
	skipped   int64
	left      []leftOut
	leftBytes int
	unlisted  int64
}

// New begins a generation. It returns ErrExists where there is a data set and opt.Mode is
// ModeCreate. With the other modes Close publishes only if the generation that New found is still
// the current one.
func New(ctx context.Context, store objstore.Store, opt Options) (*Writer, error) {
	w, err := prepare(ctx, store, opt, nil, 0, 0)
	if err == nil {
		w.start(ctx)
	}
	return w, err
}

// prepare makes a Writer of one of that many parts, or of all where parts is 0. Its goroutines do not
// run yet. The caller ends it by Close or Abort, or calls release.
func prepare(ctx context.Context, store objstore.Store, opt Options, src Source, part, parts int) (*Writer, error) {
	p, err := newPlan(opt, part, parts)
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	w := &Writer{
		plan: p, layout: opt.Layout, store: store, puts: newPuts(store), attrs: map[string]format.AttrKind{},
		cursor: func() string { return "" },
	}
	if w.layout == LayoutOfSource { // until the source has a sample
		w.layout = LayoutSamples
	}
	if src != nil {
		w.cursor, w.fingerprint, w.meta = src.Cursor, src.Fingerprint(), src.Meta()
	}
	if opt.Mode == ModeOverwrite && !opt.Resume && parts == 0 {
		if err := discardLeftovers(ctx, store, &w.plan); err != nil {
			return nil, fmt.Errorf("writer: %v: %w", store, err)
		}
	}
	if w.release, err = hold(ctx, store, w.plan.who(), w.opt.Log); err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	err = w.readPrior(ctx)
	if err == nil {
		err = w.knowLengths()
	}
	if err != nil {
		w.release()
		return nil, fmt.Errorf("writer: %v: %w", store, err)
	}
	w.generation = w.prior.next()
	return w, nil
}

// readPrior reads the current generation, and refuses what the mode does not allow.
func (w *Writer) readPrior(ctx context.Context) error {
	sum, err := w.prior.find(ctx, w.store)
	if err != nil {
		// Only an object that was read and is damaged is a data set in the way; a missing bucket or
		// a server that refuses is not.
		damaged := errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) || errors.Is(err, objstore.ErrTooLarge)
		if damaged && w.opt.Mode == ModeCreate {
			return fmt.Errorf("%w (and it cannot be read: %w)", ErrExists, err)
		}
		return err
	}
	if sum == nil {
		return nil
	}
	exists := fmt.Errorf("%w (generation %d, %d samples)", ErrExists, sum.Generation, sum.Samples)
	if w.opt.Mode == ModeCreate && !w.opt.Resume {
		return exists
	}
	err = overtaken(ctx, w.store, w.prior.info, w.prior.load(ctx, w.store))
	if err == nil && w.opt.Mode == ModeCreate && !w.finished() {
		return exists
	}
	if err == nil && w.opt.Mode == ModeAppend { // the attributes of a part must match those, too
		for _, a := range w.prior.manifest.Attributes {
			w.attrs[a.Name] = a.Kind
		}
	}
	return err
}

func (w *Writer) start(ctx context.Context) {
	if m := w.prior.manifest; m != nil && w.opt.Mode == ModeOverwrite && len(m.Removed) > 0 {
		w.opt.Log.Warn("samples were removed from the data set; the new generation will have those that the sources still hold",
			"removed", len(m.Removed), "generation", w.prior.tables)
	}
	w.line = newPipeline(ctx, &w.opt)
	w.sum = newTotals(&w.opt, w.base())
	near, _ := w.line.pace.most()
	w.emit = newEmitter(&w.plan, w.line, w.puts, w.sum)
	w.emit.pool = &buffers{free: make(chan []byte, near)}
	var skip func(*SampleError)
	if w.opt.Faults.Skip {
		skip = w.skip
	}
	w.line.start(&w.opt, w.emit, skip)
}

// Generation is the number of the generation being written.
func (w *Writer) Generation() uint64 { return w.generation }

// base is the generation whose shards precede the new ones in what is being written; nil where
// there is none.
func (w *Writer) base() *sections.Manifest {
	if w.opt.Mode == ModeAppend && w.parts == 0 {
		return w.prior.manifest
	}
	return nil
}

// Write adds a sample. It copies Field.Data; payloads may be read until Close returns. A
// *SampleError concerns this sample alone and is returned only with OnErrorFail.
func (w *Writer) Write(ctx context.Context, s Sample) error {
	if err := w.usable(); err != nil {
		return err
	}
	err := w.check(&s)
	if err == nil && w.layout != LayoutSamples {
		if err = w.fit(ctx, &s); err == nil {
			err = w.line.err()
		}
	}
	if err == nil {
		err = w.admit(&s)
	}
	if err != nil {
		se := &SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err}
		if w.opt.Faults.Skip {
			return w.leaveOut(se)
		}
		w.line.fail(se)
		return se
	}
	sh := &w.shard
	if sh.cur != nil && sh.cur.body.overflows(sh.cur, &s) {
		if err := w.dispatch(ctx, false); err != nil {
			return err
		}
	}
	if sh.cur == nil {
		if err := w.begin(ctx); err != nil {
			w.line.fail(err)
			return err
		}
	}
	before := sh.cur.size
	sh.cur.body.add(sh.cur, &s)
	sh.bytes += sh.cur.size - before
	sh.samples++
	if w.layout != LayoutSamples {
		sh.after = w.cursor()
	}
	full := sh.bytes >= w.opt.ShardSize || (w.opt.SamplesPerShard > 0 && sh.samples >= w.opt.SamplesPerShard) ||
		sh.stack != nil && sh.samples >= stacked.MaxSamples
	if !full && !w.blockFull(sh.cur.size, len(sh.cur.samples)) {
		return nil
	}
	return w.dispatch(ctx, full)
}

func (w *Writer) check(s *Sample) error {
	if err := checkSample(s); err != nil {
		return err
	}
	for _, a := range s.Attrs {
		if err := sameKind(w.attrs, a.Attribute); err != nil {
			return err
		}
	}
	return nil
}

// admit refuses a key that the shard has; the emitter compares those of a stacked shard. It notes
// key and attributes of a sample that is stored.
func (w *Writer) admit(s *Sample) error {
	stacked := w.shard.stack != nil
	if !stacked && w.shard.keys.has(s.Key) {
		return fmt.Errorf("%w key: shard %s has it already and cannot hold it twice: rename one of the samples",
			format.ErrDuplicate, w.shardName(w.shard.number))
	}
	for _, a := range s.Attrs {
		w.attrs[a.Name] = a.Kind
	}
	if !stacked {
		w.shard.keys.add(s.Key)
	}
	return nil
}

func sameKind(kinds map[string]format.AttrKind, a format.Attribute) error {
	if kind, ok := kinds[a.Name]; ok && kind != a.Kind {
		return fmt.Errorf("%w: attribute %q is a %v here and a %v in earlier samples", format.ErrMismatch, a.Name, a.Kind, kind)
	}
	return nil
}

// begin begins a block.
func (w *Writer) begin(ctx context.Context) error {
	b := w.line.spare()
	if b.layout.Buf == nil { // room for a block like the last one, rather than growing step by step
		room := w.opt.BlockSize
		if w.blockSamples > 0 {
			room = max(leastBlock, min(w.shard.laid, room))
		}
		b.layout.Buf = make([]byte, 0, room+room/4) // and for a last sample of 256 KiB
	}
	if st := w.shard.stack; st != nil {
		rows := &rowBody{stack: st, first: uint64(w.shard.samples), cursor: w.shard.after}
		if before, ok := b.body.(*rowBody); ok {
			rows.out = before.out
		}
		b.reset(rows)
	} else {
		b.reset(&tarBody{})
	}
	w.shard.cur = b
	return ctx.Err()
}

// dispatch sends the current block, and closes its shard if endShard.
func (w *Writer) dispatch(ctx context.Context, endShard bool) error {
	end := ""
	if endShard {
		end = w.cursor()
	}
	return w.dispatchTo(ctx, endShard, end)
}

// dispatchTo is dispatch with the source's cursor after the shard.
func (w *Writer) dispatchTo(ctx context.Context, endShard bool, end string) error {
	sh := &w.shard
	b := sh.cur
	sh.cur = nil
	if rows, ok := b.body.(*rowBody); ok {
		if err := w.keysFor(ctx, b, rows); err != nil {
			return err
		}
		sh.cur = nil
	}
	w.shard.laid = int64(len(b.layout.Buf))
	b.left, b.unlisted = sh.left, sh.unlisted
	sh.left, sh.leftBytes, sh.unlisted = nil, 0, 0
	if endShard {
		b.end = &shardEnd{cursorStart: sh.cursor, cursorEnd: end, skipped: sh.skipped}
		sh.cursor, sh.skipped = end, 0
		sh.number++
		sh.bytes, sh.samples = 0, 0
		sh.last, sh.stack, sh.keysAre = sh.stack, nil, keysUnknown
		sh.keys.reset()
	}
	return w.line.send(ctx, b, b.body.cost(b))
}

// usable returns the error that sticks.
func (w *Writer) usable() error {
	if w.closed {
		return errClosed
	}
	return w.line.err()
}

// leaveOut skips a sample before it is laid out.
func (w *Writer) leaveOut(e *SampleError) error {
	sh := &w.shard
	sh.skipped++
	at := 0
	if sh.cur != nil {
		at = len(sh.cur.samples)
	}
	line := skippedLine(e)
	if sh.leftBytes += len(line); sh.leftBytes <= maxBlockList {
		sh.left = append(sh.left, leftOut{at, line})
	} else {
		sh.unlisted++
	}
	sh.after = w.cursor()
	w.skip(e)
	return w.usable()
}

// skip may be called from any goroutine.
func (w *Writer) skip(e *SampleError) {
	if w.opt.Faults.Skipped != nil {
		w.opt.Faults.Skipped(e)
	}
	w.countSkipped(1, e)
}

func (w *Writer) countSkipped(more int64, last error) {
	n := w.skipped.Add(more)
	if w.opt.Faults.MaxSkipped > 0 && n > w.opt.Faults.MaxSkipped {
		w.line.fail(fmt.Errorf("%w: %d, at most %d are allowed; the last: %w", ErrSkipped, n, w.opt.Faults.MaxSkipped, last))
	}
}

// Abort stops and leaves nothing visible: the shards that were put stay, and no manifest names
// them. After Close it does nothing.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	defer w.release()
	w.line.cancel(errAborted)
	w.stop()
	return w.sum.close()
}

// stop ends all goroutines.
func (w *Writer) stop() {
	w.closed = true
	w.line.stop()
	w.emit.close()
}

// Close writes the samples that are left, publishes the generation and describes it. After an error
// nothing has been published.
func (w *Writer) Close(ctx context.Context) (res *Result, err error) {
	err = w.end(ctx, func() (err error) {
		res, err = w.publish(ctx)
		return err
	})
	return res, err
}

// end writes the samples that are left. If that succeeds, it calls publish after all goroutines
// have ended.
func (w *Writer) end(ctx context.Context, publish func() error) error {
	if w.closed {
		return errClosed
	}
	defer w.release()
	defer context.AfterFunc(ctx, func() { w.line.cancel(context.Cause(ctx)) })()
	if w.shard.cur == nil && w.shard.bytes > 0 && w.line.err() == nil {
		if err := w.begin(ctx); err != nil { // the open shard's last block was sent: an empty one closes the shard
			w.line.fail(err)
		}
	}
	if w.shard.cur != nil && w.line.err() == nil {
		_ = w.dispatch(ctx, true) // a failure sticks
	}
	w.stop()
	defer func() { _ = w.sum.close() }()
	if err := w.line.err(); err != nil {
		return err
	}
	err := publish()
	w.line.cancel(errClosed)
	return err
}
