package writer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// atShardStart reports whether the next sample begins a shard.
func (w *Writer) atShardStart() bool { return w.shard.cur == nil && w.shard.bytes == 0 }

// keysOf is how the keys of a stacked shard are stored.
type keysOf int

const (
	keysUnknown  keysOf = iota // no block was sent yet
	keysNumbered               // as ranges, at no byte a sample
	keysStored                 // in the blocks and the index
)

// endShard closes the shard before the sample at hand.
func (w *Writer) endShard(ctx context.Context) error {
	if w.shard.cur == nil {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	return w.dispatchTo(ctx, true, w.shard.after)
}

// keysFor decides how the keys of a block of rows are stored, before it is sent. The keys of a
// shard are either all numbered or all stored: a block with other keys ends a numbered shard before
// it, and has moved to the next one.
func (w *Writer) keysFor(ctx context.Context, b *block, rows *rowBody) (moved bool, err error) {
	sh := &w.shard
	numbered := rows.ranges.Numbered() && len(rows.ranges) <= 1+len(b.samples)/16
	switch {
	case len(b.samples) == 0:
	case sh.keysAre == keysUnknown && numbered:
		sh.keysAre = keysNumbered
	case sh.keysAre == keysUnknown:
		sh.keysAre = keysStored
	case sh.keysAre == keysNumbered && !numbered:
		if err := w.endBefore(ctx, b, rows); err != nil {
			return false, err
		}
		sh.keysAre, moved = keysStored, true
	}
	rows.stored = sh.keysAre == keysStored
	return moved, nil
}

// endBefore closes the shard before a block that is complete, which begins the next one.
func (w *Writer) endBefore(ctx context.Context, b *block, rows *rowBody) error {
	sh := &w.shard
	st := sh.stack
	sh.cur = nil
	if err := w.begin(ctx); err != nil {
		return err
	}
	within := slices.IndexFunc(sh.left, func(l leftOut) bool { return l.before > 0 }) // and not before the block
	if within < 0 {
		within = len(sh.left)
	}
	left := sh.left[within:]
	sh.left = sh.left[:within:within]
	if err := w.dispatchTo(ctx, true, rows.before); err != nil {
		return err
	}
	for _, l := range left {
		sh.leftBytes += len(l.line)
	}
	sh.left, sh.stack, sh.bytes, sh.samples, sh.cur = left, st, b.size, int64(len(b.samples)), b
	return nil
}

// Writer writes one generation of a data set. Its methods are for one goroutine. The first error
// sticks.
type Writer struct {
	plan
	puts    *puts
	release func() // gives back the store's lock; may be called twice
	prior   current

	input input
	// common, when not nil, replaces the metadata of this run: the parts being committed share it.
	common format.Metadata

	layout  Layout // of samples from now on; not LayoutOfSource
	shard   shardLayout
	attrs   map[string]format.AttrKind // of all samples so far
	skipped atomic.Int64
	count   counts // of this run, for as long as Write is called
	// adoptedLeft is what was left out of the shards that were adopted, by rule.
	adoptedLeft RowsLeft

	line   *pipeline // nil in a commit, which has no samples to write
	emit   *emitter
	sum    *totals
	closed bool
}

// input is what the writer asks the source for.
type input struct {
	cursor func() string   // see META in SPEC 4.6
	layer  *layerSource    // the source of a layer, which decides on blocks and shards; else nil
	leaver leaver          // the source, where it leaves out rows by itself; else nil
	meta   format.Metadata // what the source adds to the generation's metadata
}

// shardLayout is the shard that samples are being added to.
type shardLayout struct {
	number int
	start  mark   // of the source, where the shard begins
	cur    *block // the block being filled; nil between blocks
	laid   int64  // bytes laid out in the last block
	bytes  int64  // decoded
	keys   keySet // of an ordinary shard
	// stack is what the rows of a stacked shard are; nil in an ordinary one. last is the stack of
	// the shard before, samples the number of samples so far, and after the place after the last of
	// them.
	stack, last *stacker.Stack
	keysAre     keysOf
	samples     int64
	after       mark
	// left and unlisted are the samples that Write and the source left out since the last block;
	// leftBytes is the length of the lines in left.
	left      []leftOut
	leftBytes int
	unlisted  int64
}

// base is the generation whose shards precede the new ones in what is being written; nil where
// there is none.
func (w *Writer) base() *metadata.Manifest {
	if w.opt.Mode == ModeAppend && w.parts == 0 {
		return w.prior.manifest
	}
	return nil
}

// begin begins a block.
func (w *Writer) begin(ctx context.Context) error {
	b := w.line.spare()
	if b.layout.Buf == nil { // room for a block like the last one, rather than growing step by step
		room := w.opt.BlockSize
		if w.layered { // the base decides on blocks, and most are small
			room = w.shard.laid
		} else if w.blockSamples > 0 {
			room = max(leastBlock, min(w.shard.laid, room))
		}
		b.layout.Buf = make([]byte, 0, room+room/4) // and for a last sample of 256 KiB
	}
	if st := w.shard.stack; st != nil {
		rows := &rowBody{stack: st, first: uint64(w.shard.samples), before: w.shard.after}
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

// dispatch sends the current block, and closes its shard if endShard: if that is full.
func (w *Writer) dispatch(ctx context.Context, endShard bool) error {
	if rows, ok := w.shard.cur.body.(*rowBody); ok {
		moved, err := w.keysFor(ctx, w.shard.cur, rows)
		if err != nil {
			return err
		}
		if moved && endShard { // the shard that ended was full: it goes on as in a run that continues there
			var full bool
			if full, endShard = w.ends(); !full {
				return nil
			}
		}
	}
	var end mark
	if endShard {
		end = w.mark()
	}
	return w.dispatchTo(ctx, endShard, end)
}

// dispatchTo is dispatch with the place after the shard.
func (w *Writer) dispatchTo(ctx context.Context, endShard bool, end mark) error {
	sh := &w.shard
	b := sh.cur
	sh.cur = nil
	if rows, ok := b.body.(*rowBody); ok {
		if _, err := w.keysFor(ctx, b, rows); err != nil {
			return err
		}
		sh.cur = nil
	}
	w.shard.laid = int64(len(b.layout.Buf))
	b.left, b.unlisted = sh.left, sh.unlisted
	sh.left, sh.leftBytes, sh.unlisted = nil, 0, 0
	if endShard {
		b.end = &shardEnd{start: sh.start, end: end}
		sh.start = end
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

func (w *Writer) countSkipped(more int64, last error) {
	n := w.skipped.Add(more)
	if w.opt.Faults.MaxSkipped > 0 && n > w.opt.Faults.MaxSkipped {
		w.line.fail(fmt.Errorf("%w: %d, at most %d are allowed; the last: %w", ErrSkipped, n, w.opt.Faults.MaxSkipped,
			last))
	}
}
