package writer

import (
	"context"
	"errors"

	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// chooseLayout takes the layout that the source asks for.
func (w *Writer) chooseLayout(src Source) {
	if s, ok := src.(Stacker); ok && w.opt.Layout == LayoutOfSource && s.Stacks() {
		w.layout = LayoutStacked
	}
}

// ErrLayout: a sample cannot be stacked, alone or with those before it. LayoutSamples stores it.
var ErrLayout = stacker.ErrRow

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
	if err != nil && (w.layout == LayoutStacked || !errors.Is(err, stacker.ErrRow)) {
		return err
	}
	sh.stack = st
	return nil
}

// misfit describes a sample that does not fit, by its arrays where they can be read.
func misfit(ctx context.Context, st *stacker.Stack, s *Sample, err error) error {
	if own, lerr := learn(ctx, s); lerr == nil {
		return st.Differ(own.Layout, err)
	} else if errors.Is(lerr, ErrLayout) {
		return lerr
	}
	return err
}

// fits reports whether a sample can be a row of the stack. A header of another length may describe
// the same array.
func fits(ctx context.Context, st *stacker.Stack, s *Sample) error {
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
func learn(ctx context.Context, s *Sample) (*stacker.Stack, error) {
	files := make([]stacker.File, len(s.Fields))
	for i := range s.Fields {
		f := &s.Fields[i]
		files[i] = stacker.File{Name: f.Name, Size: f.size(), First: f.Data}
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
	return stacker.Learn(files)
}
