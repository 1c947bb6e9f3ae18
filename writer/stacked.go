package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/writer/internal/stack"
)

// Layout is how samples are stored in shards.
type Layout int

const (
	// LayoutSamples stores each sample as members of a tar: any fields of any size.
	LayoutSamples Layout = iota
	// LayoutStacked stores a block as one array a field, with a row for each sample (SPEC 11): all
	// samples have the same fields, and each field is an NPY file of one type and shape. Another
	// sample is an error that wraps ErrLayout.
	LayoutStacked
	// LayoutAuto stacks samples while that is possible. One that does not fit ends the shard, and the
	// next shard is an ordinary one; each shard after an ordinary one is stacked if its first sample
	// can be.
	LayoutAuto
	// LayoutOfSource is LayoutStacked if the source is a Stacker that asks for it, and else
	// LayoutSamples. It is for Pack and PackPart.
	LayoutOfSource
)

// chooseLayout takes the layout that the source asks for.
func (w *Writer) chooseLayout(src Source) {
	if s, ok := src.(Stacker); ok && w.opt.Layout == LayoutOfSource && s.Stacks() {
		w.layout = LayoutStacked
	}
}

// ErrLayout: a sample cannot be stacked, alone or with those before it. LayoutSamples stores it.
var ErrLayout = stack.ErrRow

// keysOf is how the keys of a stacked shard are stored.
type keysOf int

const (
	keysUnknown  keysOf = iota // no block was sent yet
	keysNumbered               // as ranges, at no byte a sample
	keysStored                 // in the blocks and the index
)

// fit decides how the next sample is stored: it ends the shard where the sample does not fit into
// it, and learns what rows are from the first sample of a shard.
func (w *Writer) fit(ctx context.Context, s *Sample) error {
	sh := &w.shard
	if !w.atShardStart() {
		if sh.stack == nil { // an ordinary shard takes any sample
			return nil
		}
		err := fits(ctx, sh.stack, s)
		if err == nil {
			return nil
		}
		if w.layout == LayoutStacked {
			return misfit(ctx, sh.stack, s, err)
		}
		if err := w.endShard(ctx); err != nil {
			return err
		}
	}
	sh.keysAre = keysUnknown
	if sh.last != nil {
		if err := fits(ctx, sh.last, s); err == nil {
			sh.stack = sh.last
			return nil
		} else if w.layout == LayoutStacked {
			return misfit(ctx, sh.last, s, err)
		}
		sh.stack = nil
		return nil
	}
	st, err := learn(ctx, s)
	if err != nil && (w.layout == LayoutStacked || !errors.Is(err, stack.ErrRow)) {
		return err
	}
	sh.stack = st
	return nil
}

// misfit describes a sample that does not fit, by its arrays where they can be read.
func misfit(ctx context.Context, st *stack.Stack, s *Sample, err error) error {
	if own, lerr := learn(ctx, s); lerr == nil {
		return st.Differ(own.Layout, err)
	} else if errors.Is(lerr, ErrLayout) {
		return lerr
	}
	return err
}

// fits reports whether a sample can be a row of the stack. A header of another length may describe the
// same array.
func fits(ctx context.Context, st *stack.Stack, s *Sample) error {
	err := st.Fits(len(s.Fields), func(i int) (string, int64) { return s.Fields[i].Name, s.Fields[i].size() })
	if err == nil {
		return nil
	}
	if own, lerr := learn(ctx, s); lerr == nil && own.Layout.Equal(st.Layout) {
		return nil
	}
	return err
}

// learn reads the headers of a sample's arrays.
func learn(ctx context.Context, s *Sample) (*stack.Stack, error) {
	files := make([]stack.File, len(s.Fields))
	for i := range s.Fields {
		f := &s.Fields[i]
		files[i] = stack.File{Name: f.Name, Size: f.size(), First: f.Data}
		if f.Payload == nil {
			continue
		}
		r, err := f.Payload.Open(ctx)
		if err != nil {
			return nil, err
		}
		files[i].First, err = (&peeked{ReadCloser: r}).header()
		r.Close()
		if err != nil {
			return nil, err
		}
	}
	return stack.Learn(files)
}

// endShard closes the shard before the sample at hand.
func (w *Writer) endShard(ctx context.Context) error {
	if w.shard.cur == nil {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	return w.dispatchTo(ctx, true, w.shard.after)
}

// keysFor decides how the keys of a block of rows are stored, before it is sent. Those of a shard are
// either all numbered or all stored: a block with other keys ends a numbered shard before it.
func (w *Writer) keysFor(ctx context.Context, b *block, rows *rowBody) error {
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
			return err
		}
		sh.keysAre = keysStored
	}
	rows.stored = sh.keysAre == keysStored
	return nil
}

// endBefore closes the shard before a block that is complete, which begins the next one.
func (w *Writer) endBefore(ctx context.Context, b *block, rows *rowBody) error {
	sh := &w.shard
	st := sh.stack
	sh.cur = nil
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.dispatchTo(ctx, true, rows.cursor); err != nil {
		return err
	}
	sh.stack, sh.bytes, sh.samples, sh.cur = st, b.size, int64(len(b.samples)), b
	return nil
}

func (l Layout) String() string { return [...]string{"samples", "stacked", "auto", "of the source"}[l] }

// ParseLayout parses the result of String.
func ParseLayout(s string) (Layout, error) {
	for l := LayoutSamples; l <= LayoutAuto; l++ {
		if s == l.String() {
			return l, nil
		}
	}
	return 0, fmt.Errorf("layout %q is not samples, stacked or auto", s)
}
