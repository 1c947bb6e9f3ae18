package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/codec"
	"github.com/shardtool/shardtool/internal/samplekey"
	"github.com/shardtool/shardtool/internal/stacked"
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
func (w *Writer) keysFor(ctx context.Context, b *block) error {
	sh := &w.shard
	numbered := b.ranges.Numbered() && len(b.ranges) <= 1+len(b.samples)/16
	switch {
	case len(b.samples) == 0:
	case sh.keysAre == keysUnknown && numbered:
		sh.keysAre = keysNumbered
	case sh.keysAre == keysUnknown:
		sh.keysAre = keysStored
	case sh.keysAre == keysNumbered && !numbered:
		if err := w.endBefore(ctx, b); err != nil {
			return err
		}
		sh.keysAre = keysStored
	}
	b.stored = sh.keysAre == keysStored
	return nil
}

// endBefore closes the shard before a block that is complete, which begins the next one.
func (w *Writer) endBefore(ctx context.Context, b *block) error {
	sh := &w.shard
	st := sh.stack
	sh.cur = nil
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.dispatchTo(ctx, true, b.cursor); err != nil {
		return err
	}
	sh.stack, sh.bytes, sh.samples, sh.cur = st, b.size, int64(len(b.samples)), b
	return nil
}

// addRow lays out a sample that becomes a row: its files, one after the other.
func (b *block) addRow(s *Sample) {
	first := len(b.sizes)
	for i := range s.Fields {
		b.sizes = append(b.sizes, format.FieldSize{Name: s.Fields[i].Name, Size: s.Fields[i].size()})
	}
	b.samples = append(b.samples, blockSample{
		key: s.Key, origin: s.Origin, fields: b.sizes[first:len(b.sizes):len(b.sizes)], attrs: cloneAttrs(s.Attrs),
		begin: len(b.layout.Cuts), fill: len(b.fills), source: s.Source, row: s.Row,
	})
	b.ranges.Add(s.Key)
	b.width = max(b.width, len(s.Key))
	for i := range s.Fields {
		f := &s.Fields[i]
		at := b.layout.Raw(int(f.size()))
		if f.Payload != nil {
			b.fills = append(b.fills, fill{off: at, size: int(f.Size), from: f.Payload})
		} else {
			copy(b.layout.Buf[at:], f.Data)
		}
	}
	b.size += b.stack.RowLen()
}

func cloneAttrs(attrs []format.AttrValue) []format.AttrValue {
	if len(attrs) == 0 {
		return nil
	}
	return append([]format.AttrValue(nil), attrs...)
}

// overflows reports whether a block of rows has no room for another sample: it is one frame.
func (b *block) overflows(s *Sample) bool {
	if b == nil || b.stack == nil {
		return false
	}
	row := b.stack.RowLen() + int64(max(b.width, len(s.Key)))
	return int64(len(b.samples)+1)*row > format.MaxFrame-b.stack.Headers()
}

// gather makes the arrays of a block out of its samples, those that were dropped left out. skip,
// when not nil, is called for a sample whose arrays are no rows.
func (b *block) gather(skip func(*SampleError)) (decoded []byte, cuts, payloads []int, err error) {
	rows := make([][]byte, 0, len(b.samples)*len(b.stack.Layout.Fields))
	kept := 0
	width := 0
	for i := range b.samples {
		s := &b.samples[i]
		if s.dropped != nil {
			continue
		}
		at := len(rows)
		for f := range s.fields {
			off := b.layout.Payloads[s.begin+f]
			row, err := b.stack.Row(f, b.layout.Buf[off:off+int(s.fields[f].Size)])
			if err != nil {
				s.dropped = s.failed(err)
				if skip == nil {
					return nil, nil, nil, s.dropped
				}
				skip(s.dropped)
				rows = rows[:at]
				break
			}
			rows = append(rows, row)
		}
		if s.dropped == nil {
			kept++
			width = max(width, len(s.key))
		}
	}
	if kept == 0 {
		return nil, nil, nil, nil
	}
	if !b.stored {
		width = 0
	}
	first := b.first
	rb, cuts, payloads := stacked.NewBlock(b.out, b.stack.Layout, first, kept, width)
	b.out = rb.Buf
	fields := len(b.stack.Layout.Fields)
	for f := range fields {
		base, stride := rb.Rows(f)
		for k := range kept {
			copy(rb.Buf[base+k*stride:], rows[k*fields+f])
		}
	}
	if width > 0 {
		k := 0
		for i := range b.samples {
			if b.samples[i].dropped == nil {
				rb.SetKey(k, b.samples[i].key)
				k++
			}
		}
	}
	return rb.Buf, cuts, payloads, nil
}

// rows makes the frame of a block of rows; ok is false where no sample is left.
func (b *block) rows(enc *encoder, skip func(*SampleError)) (f frame, ok bool, err error) {
	decoded, cuts, payloads, err := b.gather(skip)
	if err != nil || len(decoded) == 0 {
		return f, false, err
	}
	b.hash = format.BlockHash(decoded)
	f, err = enc.encode(decoded, cuts, payloads)
	return f, err == nil, err
}

// rowsOf takes a block of rows into the open shard.
func (e *emitter) rowsOf(b *block) error {
	s := e.shard
	frames := []frame{}
	for f := range b.frames {
		frames = append(frames, f)
	}
	if b.err != nil {
		return b.err
	}
	if len(frames) > 0 && b.first != s.samples { // workers left samples out of the blocks before
		b.first = s.samples
		enc := &encoder{plain: e.plan.opt.Plain, enc: codec.NewEncoder(e.plan.opt.Level), pool: e.pool}
		defer enc.enc.Close()
		f, _, err := b.rows(enc, nil)
		if err != nil {
			return err
		}
		e.pool.put(frames[0].stored)
		frames[0] = f
	}
	for i := range frames {
		if err := s.frame(&frames[i], e.pool); err != nil {
			return err
		}
	}
	kept, err := e.indexRows(b)
	if err != nil || len(frames) == 0 {
		return err
	}
	frames[0].row.Samples = uint32(kept)
	s.index.AddRow(frames[0].row)
	s.hasher.Add(b.hash)
	s.blocks++
	s.samples += uint64(kept)
	e.sum.prog.Blocks++
	return nil
}

// indexRows adds the samples of a block of rows to the index and the totals.
func (e *emitter) indexRows(b *block) (kept int, err error) {
	s := e.shard
	left := b.left
	var keys []string
	var attrs [][]format.AttrValue
	var ranges samplekey.Ranges
	whole := s.skipped // unchanged where the block lost no sample
	for i := range b.samples {
		smp := &b.samples[i]
		for ; len(left) > 0 && left[0].before <= i; left = left[1:] {
			s.list.add(left[0].line)
		}
		if smp.dropped != nil {
			s.skipped++
			s.list.add(skippedLine(smp.dropped))
			continue
		}
		if b.stored {
			keys = append(keys, smp.key)
		}
		if len(smp.attrs) > 0 && attrs == nil {
			attrs = make([][]format.AttrValue, kept, len(b.samples))
		}
		if attrs != nil {
			attrs = append(attrs, smp.attrs)
		}
		kept++
		for f := range smp.fields {
			smp.fields[f].Size = b.stack.FieldSize(f)
		}
		if err := e.sum.rows(smp.fields, smp.attrs); err != nil {
			return kept, smp.failed(err)
		}
	}
	for _, l := range left {
		s.list.add(l.line)
	}
	s.list.more += b.unlisted
	if kept == 0 {
		return 0, nil
	}
	if !b.stored {
		ranges = b.ranges
		if s.skipped != whole {
			ranges = b.keptRanges()
		}
	}
	return kept, s.index.AddRows(b.stack.Layout, kept, ranges, keys, attrs)
}

// keptRanges returns the ranges of the keys of the samples that were not dropped.
func (b *block) keptRanges() (ranges samplekey.Ranges) {
	for i := range b.samples {
		if b.samples[i].dropped == nil {
			ranges.Add(b.samples[i].key)
		}
	}
	return ranges
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
