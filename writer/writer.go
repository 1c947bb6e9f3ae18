package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

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

// prepare makes a Writer of one of that many parts, or of all where parts is 0. Its goroutines do
// not run yet. The caller ends it by Close or Abort, or calls release.
func prepare(ctx context.Context, store objstore.Store, opt Options, src Source, part, parts int) (*Writer, error) {
	p, err := newPlan(opt, part, parts)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		plan: p, layout: opt.Layout, puts: newPuts(store), attrs: map[string]format.AttrKind{},
		input: input{cursor: func() string { return "" }},
	}
	if w.layout == LayoutOfSource { // until the source has a sample
		w.layout = LayoutSamples
	}
	if src != nil {
		w.input.cursor, w.fingerprint, w.input.meta = src.Cursor, src.Fingerprint(), src.Meta()
		w.input.layer, w.layered = src.(*layerSource)
		w.input.leaver, _ = src.(leaver)
	}
	if opt.Mode == ModeOverwrite && !opt.Resume && parts == 0 {
		if err := discardLeftovers(ctx, store, &w.plan); err != nil {
			return nil, fmt.Errorf("%v: %w", store, err)
		}
	}
	if w.release, err = hold(ctx, store, w.plan.who(), w.opt.Log); err != nil {
		return nil, err
	}
	err = w.readPrior(ctx)
	if err == nil {
		err = w.knowLengths()
	}
	if err == nil && !(opt.Resume && w.finished()) { // else the first shard is packed before the answer is known
		refused := checkRights(ctx, store, w.opt.Log)
		if check := objstore.TraitsOf(store).CheckWrites; refused == nil && check != nil {
			refused = check(ctx, false)
		}
		if refused != nil {
			w.release()
			return nil, refused
		}
	}
	if err != nil {
		w.release()
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	w.generation = w.prior.next()
	return w, nil
}

// CheckTarget returns the error with which New refuses a store that has a data set, or that nobody
// can write to, nil if it does not. A caller whose source takes long to list calls it first.
func CheckTarget(ctx context.Context, store objstore.Store, opt Options) error {
	if objstore.TraitsOf(store).Remote() { // such a store sends nothing before it has bytes
		up, err := store.Create(ctx, format.ManifestName, objstore.Condition{})
		if err != nil {
			return err
		}
		if err := up.Abort(); err != nil {
			return err
		}
	}
	var p current
	if _, exists, err := p.allow(ctx, store, &opt); err != nil || exists != nil && !opt.Resume {
		return fmt.Errorf("%v: %w", store, cmp.Or(err, exists))
	}
	return nil
}

// allow reads the summary of the current generation, nil if there is none. exists is the error for
// one that ModeCreate finds.
func (p *current) allow(ctx context.Context, store objstore.Store,
	opt *Options) (sum *metadata.Summary, exists, err error) {
	sum, err = p.find(ctx, store)
	if err != nil {
		// Only an object that was read and is damaged is a data set in the way; a missing bucket or
		// a server that refuses is not.
		damaged := errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) ||
			errors.Is(err, objstore.ErrTooLarge)
		if damaged && opt.Mode == ModeCreate {
			err = fmt.Errorf("%w (and it cannot be read: %w)", ErrExists, err)
		}
		return nil, nil, err
	}
	if sum != nil && opt.Mode == ModeCreate {
		exists = fmt.Errorf("%w (generation %d, %s)", ErrExists, sum.Generation, plain.Plural(sum.Samples, "sample"))
	}
	return sum, exists, nil
}

// readPrior reads the current generation, and refuses what the mode does not allow.
func (w *Writer) readPrior(ctx context.Context) error {
	sum, exists, err := w.prior.allow(ctx, w.puts.store, &w.opt)
	if err != nil || sum == nil {
		return err
	}
	if exists != nil && !w.opt.Resume {
		return exists
	}
	err = overtaken(ctx, w.puts.store, w.prior.info, w.prior.load(ctx, w.puts.store))
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
	w.line.start(&w.opt, w.emit.pool, skip, w.emit.run)
}

// Write adds a sample. It copies Field.Data; payloads may be read until Close returns. A
// *SampleError concerns this sample alone and is returned only without Options.Faults.Skip.
func (w *Writer) Write(ctx context.Context, s Sample) error {
	if err := w.usable(); err != nil {
		return err
	}
	err := w.check(&s)
	if err == nil && w.input.layer != nil && w.atShardStart() {
		w.shard.stack, w.shard.keysAre = w.input.layer.begins()
	} else if err == nil && w.input.layer == nil && w.layout != LayoutSamples {
		if err = w.fit(ctx, &s); err == nil {
			err = w.line.err()
		}
	}
	if err == nil {
		err = w.admit(&s)
	}
	if err != nil {
		se := s.failed(err)
		if w.opt.Faults.Skip {
			return w.leaveOut(se)
		}
		w.line.fail(se)
		return se
	}
	sh := &w.shard
	if sh.cur != nil && w.input.layer == nil && sh.cur.body.overflows(sh.cur, &s) {
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
		sh.after = w.mark()
	}
	block, shard := w.ends()
	if !block {
		return nil
	}
	return w.dispatch(ctx, shard)
}

// ends reports whether the block and the shard end after the last sample.
func (w *Writer) ends() (block, shard bool) {
	if w.input.layer != nil {
		return w.input.layer.ends()
	}
	sh := &w.shard
	shard = sh.bytes >= w.opt.ShardSize || (w.opt.SamplesPerShard > 0 && sh.samples >= w.opt.SamplesPerShard) ||
		sh.stack != nil && sh.samples >= stacked.MaxSamples
	return shard || w.blockFull(sh.cur.size, len(sh.cur.samples)), shard
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

// admit refuses a key that the shard has; the emitter compares the keys of a stacked shard. It
// notes key and attributes of a sample that is stored.
func (w *Writer) admit(s *Sample) error {
	stacked := w.shard.stack != nil
	if !stacked && w.shard.keys.has(s.Key) {
		return fmt.Errorf("%w key: an earlier sample of shard %s has the same key: rename one of them",
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

// leaveOut skips a sample before it is laid out.
func (w *Writer) leaveOut(e *SampleError) error {
	sh := &w.shard
	w.count.skip(e)
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
	sh.after = w.mark()
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
		_ = w.dispatchTo(ctx, true, w.mark()) // a failure sticks
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

// knowLengths fixes the kind of the attributes of Options.Lengths.
func (w *Writer) knowLengths() error {
	for _, l := range w.opt.lengths() {
		a := format.Attribute{Name: l.attr, Kind: format.AttrInteger}
		if err := sameKind(w.attrs, a); err != nil {
			return err
		}
		w.attrs[a.Name] = a.Kind
	}
	return nil
}
