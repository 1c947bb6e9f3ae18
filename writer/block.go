package writer

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/input/fused"
)

// block is a block in the pipeline: laid out by Write, filled and compressed by a worker, written
// in order.
type block struct {
	body    body
	layout  tarblock.Builder
	samples []blockSample
	sizes   []format.FieldSize // of all samples, in order
	fills   []fill
	size    int64 // the decoded length
	taken   int64 // of the pipeline's memory

	// frames carries the worker's results in order; the worker closes it.
	frames chan frame
	// filled, when not nil, is closed once all payloads of the layout have been read.
	filled chan struct{}
	hash   format.Hash
	err    error

	// end, when not nil, closes the shard after this block.
	end *shardEnd
	// adopt, when not nil, is a whole shard that the store has already; all other fields are empty.
	adopt *adopted

	// left lists samples that were left out before they came into the block; unlisted counts those
	// for which the list had no room.
	left     []leftOut
	unlisted int64
}

// body is how a block stores its samples: as members of a tar, or as the rows of arrays. A body
// belongs to one block, which its methods get.
type body interface {
	// add lays out a sample, whose fields are sorted.
	add(b *block, s *Sample)
	// overflows reports whether the block has no room for another sample.
	overflows(b *block, s *Sample) bool
	// cost is how many bytes of memory the block takes in the pipeline.
	cost(b *block) int64
	// pack measures, hashes and compresses the samples, whose payloads have been read.
	pack(b *block, p *packer) error
	// renumber sets the number of the block's first sample in its shard. It reports whether the block
	// has to be packed again.
	renumber(first uint64) bool
	// index adds the samples to the index of their shard and to the totals, and counts them.
	index(b *block, s *openShard, sum *totals) (kept int, err error)
	// shrink frees memory of more than that many bytes.
	shrink(most int)
}

// blockSample is what the index needs of a sample.
type blockSample struct {
	Sample  // without Fields
	fields  []format.FieldSize
	begin   int          // of its first member in the layout
	fill    int          // index of its first fill
	dropped *SampleError // why a worker left it out
}

// fill is a payload to be read into the layout.
type fill struct {
	off, size int
	from      Payload
}

func (b *block) reset(how body) {
	b.body = how
	b.layout.Reset()
	b.samples, b.sizes, b.fills = b.samples[:0], b.sizes[:0], b.fills[:0]
	b.size, b.taken, b.hash, b.err, b.end, b.adopt = 0, 0, format.Hash{}, nil, nil, nil
	b.left, b.unlisted, b.filled = nil, 0, nil
	b.frames = make(chan frame, 1)
}

// shrink frees memory that an uncommonly large sample took: the pipeline does not count blocks that
// wait to be used again.
func (b *block) shrink(blockSize int64) {
	most := int(max(4<<20, 2*blockSize))
	if cap(b.layout.Buf) > most {
		b.layout = tarblock.Builder{}
	}
	if b.body != nil {
		b.body.shrink(most)
	}
}

// note adds a sample to the list of samples, and returns the sizes of its fields.
func (b *block) note(s *Sample) []format.FieldSize {
	first := len(b.sizes)
	for i := range s.Fields {
		b.sizes = append(b.sizes, format.FieldSize{Name: s.Fields[i].Name, Size: s.Fields[i].size()})
	}
	fields := b.sizes[first:len(b.sizes):len(b.sizes)]
	of := *s
	of.Fields, of.Attrs = nil, slices.Clone(s.Attrs)
	b.samples = append(b.samples, blockSample{Sample: of, fields: fields, begin: len(b.layout.Cuts),
		fill: len(b.fills)})
	return fields
}

// put copies a payload to its place in the layout, or has it read later.
func (b *block) put(f *Field, at int) {
	if f.Payload != nil {
		b.fills = append(b.fills, fill{off: at, size: int(f.Size), from: f.Payload})
	} else {
		copy(b.layout.Buf[at:], f.Data)
	}
}

// readPayloads reads the payloads of the layout. skip, when not nil, is called for samples that
// cannot be read; they are removed from the block.
func (b *block) readPayloads(ctx context.Context, p *pace, skip func(*SampleError)) {
	defer close(b.filled)
	b.err = p.read(ctx, len(b.fills), func() error { return b.fill(ctx, skip) })
}

// packer packs blocks for one worker.
type packer struct {
	ctx     context.Context
	enc     *encoder
	lengths []length
	// skip, when not nil, is called for a sample that cannot be stored.
	skip func(*SampleError)
	send func(frame) error
}

// process waits until the layout is filled, and packs it.
func (p *packer) process(b *block) {
	defer close(b.frames)
	if b.filled != nil {
		<-b.filled
	}
	if b.err == nil && p.ctx.Err() != nil {
		b.err = context.Cause(p.ctx)
	}
	if b.err != nil {
		return
	}
	p.send = func(f frame) error {
		select {
		case b.frames <- f:
			return nil
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
	b.err = b.body.pack(b, p)
}

// drop leaves a sample out of its block. Where samples are not skipped it returns the error.
func (p *packer) drop(s *blockSample, err error) error {
	s.dropped = s.failed(err)
	if p.skip == nil {
		return s.dropped
	}
	p.skip(s.dropped)
	return nil
}

// fill reads payloads into the layout.
func (b *block) fill(ctx context.Context, skip func(*SampleError)) error {
	for i := range b.samples {
		s := &b.samples[i]
		end := len(b.fills)
		if i+1 < len(b.samples) {
			end = b.samples[i+1].fill
		}
		for _, f := range b.fills[s.fill:end] {
			err := f.from.ReadInto(ctx, b.layout.Buf[f.off:f.off+f.size])
			if err == nil {
				continue
			}
			se := s.failed(err)
			if skip == nil || ctx.Err() != nil {
				return se
			}
			skip(se)
			s.dropped = se
			break
		}
	}
	return nil
}

// each calls keep for the samples of the block, in order. It lists those that were left out.
func (b *block) each(s *openShard, keep func(*blockSample) error) error {
	left := b.left
	for i := range b.samples {
		for ; len(left) > 0 && left[0].before <= i; left = left[1:] {
			s.list.add(left[0].line)
		}
		sample := &b.samples[i]
		if sample.dropped != nil {
			s.skipped++
			s.list.add(skippedLine(sample.dropped))
			continue
		}
		if err := keep(sample); err != nil {
			return sample.failed(err)
		}
	}
	for _, l := range left {
		s.list.add(l.line)
	}
	s.list.more += b.unlisted
	return nil
}

// measure sets the attributes of samples in the layout of a block. A sample without a length is
// dropped.
func (p *packer) measure(b *block, laid []blockSample) error {
	for i := range laid {
		s := &laid[i]
		for _, l := range p.lengths {
			if s.dropped != nil {
				break
			}
			field, wanted, err := l.wants(s.Attrs, s.fields)
			if wanted {
				at, size := b.layout.Payloads[s.begin+field], s.fields[field].Size
				err = s.measure(l, b.layout.Buf[at:int64(at)+size], size)
			}
			if err == nil {
				continue
			}
			if err := p.drop(s, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure sets an attribute by the array of size bytes that begins with the bytes of first.
func (s *blockSample) measure(l length, first []byte, size int64) error {
	v, err := l.value(first, size)
	if err == nil {
		s.Attrs = append(s.Attrs, v)
	}
	return err
}

// adopted is a shard that an interrupted run put and that this run would write identically.
type adopted struct {
	entry metadata.ShardEntry
	index *metadata.ShardIndex
	fused fused.Watch // of an archive that was indexed
}
