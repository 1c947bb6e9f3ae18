package writer

import (
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/writer/internal/stacker"
)

// rowBody stores samples as the rows of arrays. The block's layout has their files without headers.
type rowBody struct {
	stack *stacker.Stack // what rows are
	// ranges and width describe the keys; stored reports that the block holds them.
	ranges samplekey.Ranges
	width  int
	stored bool
	first  uint64 // the number in the shard of the first sample
	before mark   // of the source, before that sample
	out    []byte // memory of the arrays
}

func (r *rowBody) add(b *block, s *Sample) {
	b.note(s)
	r.ranges.Add(s.Key)
	r.width = max(r.width, len(s.Key))
	for i := range s.Fields {
		f := &s.Fields[i]
		b.put(f, b.layout.Raw(int(f.size())))
	}
	b.size += r.stack.RowLen()
}

// overflows: a block of rows is one frame.
func (r *rowBody) overflows(b *block, s *Sample) bool {
	row := r.stack.RowLen() + int64(max(r.width, len(s.Key)))
	return int64(len(b.samples)+1)*row > format.MaxFrame-r.stack.Headers()
}

func (r *rowBody) cost(b *block) int64 { return 2 * b.size }

func (r *rowBody) pack(b *block, p *packer) error {
	if err := p.measure(b, b.samples); err != nil {
		return err
	}
	decoded, cuts, payloads, err := r.gather(b, p)
	if err != nil || len(decoded) == 0 {
		return err
	}
	b.hash = format.BlockHash(decoded)
	f, err := p.enc.encode(decoded, cuts, payloads)
	if err != nil {
		return err
	}
	return p.send(f)
}

// renumber: the block has the number of its first sample, and workers may leave samples out of the
// blocks before it.
func (r *rowBody) renumber(first uint64) bool {
	moved := r.first != first
	r.first = first
	return moved
}

// gather makes the arrays of a block out of its samples, without those that were dropped.
func (r *rowBody) gather(b *block, p *packer) (decoded []byte, cuts, payloads []int, err error) {
	rows := make([][]byte, 0, len(b.samples)*len(r.stack.Layout.Fields))
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
			row, err := r.stack.Row(f, b.layout.Buf[off:off+int(s.fields[f].Size)])
			if err != nil {
				if err := p.drop(s, err); err != nil {
					return nil, nil, nil, err
				}
				rows = rows[:at]
				break
			}
			rows = append(rows, row)
		}
		if s.dropped == nil {
			kept++
			width = max(width, len(s.Key))
		}
	}
	if kept == 0 {
		return nil, nil, nil, nil
	}
	if !r.stored {
		width = 0
	}
	rb, cuts, payloads := stacked.NewBlock(r.out, r.stack.Layout, r.first, kept, width)
	r.out = rb.Buf
	fields := len(r.stack.Layout.Fields)
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
				rb.SetKey(k, b.samples[i].Key)
				k++
			}
		}
	}
	return rb.Buf, cuts, payloads, nil
}

func (r *rowBody) index(b *block, s *openShard, sum *totals) (kept int, err error) {
	var keys []string
	var attrs [][]format.AttrValue
	var ranges samplekey.Ranges
	err = b.each(s, func(x *blockSample) error {
		if r.stored {
			keys = append(keys, x.Key)
		} else {
			ranges.Add(x.Key)
		}
		if len(x.Attrs) > 0 && attrs == nil {
			attrs = make([][]format.AttrValue, kept, len(b.samples))
		}
		if attrs != nil {
			attrs = append(attrs, x.Attrs)
		}
		kept++
		for f := range x.fields {
			x.fields[f].Size = r.stack.FieldSize(f)
		}
		return sum.rows(x.fields, x.Attrs)
	})
	if err != nil || kept == 0 {
		return kept, err
	}
	return kept, s.index.AddRows(r.stack.Layout, kept, ranges, keys, attrs)
}

func (r *rowBody) shrink(most int) {
	if cap(r.out) > most {
		r.out = nil
	}
}
