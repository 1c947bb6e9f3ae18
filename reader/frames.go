package reader

import (
	"context"
	"fmt"
	"iter"

	"github.com/shardtool/shardtool/format"
)

// Range is a part of a data set in storage order: shards [From, To). The zero value is all of it, and so is To 0: up to
// the last shard.
type Range struct{ From, To int }

// Frame is a decoded frame: a block of ordinary size, or up to 16 MiB of a larger one.
type Frame struct {
	// Shard is the shard's number, Block the block's in the shard, Row the frame's in Dataset.Rows.
	Shard, Block, Row int
	// Offset is where the Stored bytes of the frame begin in the object, BlockOffset where the decoded ones do in the
	// block: 0 in its first frame.
	Offset, BlockOffset int64
	Stored              int
	// FirstSample is the number of the block's first sample in the data set. Samples is how many the block has, in its
	// first frame; 0 in the frames that continue it.
	FirstSample uint64
	Samples     int
	// Last: the block ends with this frame.
	Last bool
	// Decoded are tar members, valid until the next step of the iteration. Do not write to them.
	Decoded []byte

	shard *shard
}

// FrameOptions say what else happens to frames.
type FrameOptions struct {
	// Check, when not nil, is called with every frame, on the goroutine that decoded it: several run at once, and not in
	// order. An error it returns takes the frame's place.
	Check func(*Frame) error
}

// Frames reads the frames of a range of shards in storage order: fetched, compared with their
// CRC-32C, decoded and the names of members checked on Options.Workers goroutines, within
// Options.Memory. Nothing is read before the loop begins; when it ends, by a break too, all
// goroutines have ended. An error comes in the place of the frame it belongs to, with shard, block
// and offset, and is the last thing the loop sees. Every range over the result reads anew.
func (d *Dataset) Frames(ctx context.Context, r Range, o FrameOptions) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		p := d.newPipeline()
		p.check = func(f *Frame) error {
			if f.Samples > 0 && f.Last {
				if err := f.names(); err != nil {
					return err
				}
			}
			if o.Check != nil {
				return o.Check(f)
			}
			return nil
		}
		var large members // of a block of several frames
		for u, err := range p.run(ctx, d.storageOrder(ctx, r, false)) {
			if err != nil {
				yield(Frame{}, err)
				return
			}
			for i := range u.results {
				if err := u.results[i].err; err != nil {
					yield(Frame{}, err)
					return
				}
				if err := large.pass(&u.results[i].Frame); err != nil {
					yield(Frame{}, err)
					return
				}
				if !yield(u.results[i].Frame, nil) {
					return
				}
			}
		}
	}
}

// names goes through the members of a whole block: the walker checks their names.
func (f *Frame) names() error {
	walk := format.Walker{Buf: f.Decoded, Foreign: f.shard.Foreign}
	var m format.Member
	for {
		if ok, err := walk.Next(&m); err != nil || !ok {
			return f.place(inBlock(err))
		}
	}
}

func (f *Frame) place(err error) error {
	return format.Position(err, f.shard.Name, f.Block, f.Offset, "")
}

// pass is names for blocks of several frames, which come one by one.
func (m *members) pass(f *Frame) error {
	if f.Samples > 0 && f.Last {
		return nil
	}
	if f.Samples > 0 {
		*m = members{want: -1, foreign: f.shard.Foreign, head: m.head[:0], key: m.key[:0]}
	}
	err := m.write(f.Decoded, f.place)
	if err == nil && f.Last {
		err = m.end(f.place)
	}
	return err
}

// storageOrder is the order of jobs that reads a range of shards from front to end. whole keeps blocks in one piece.
func (d *Dataset) storageOrder(ctx context.Context, r Range, whole bool) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		if r.To == 0 {
			r.To = d.NumShards()
		}
		if r.From < 0 || r.From > r.To || r.To > d.NumShards() {
			yield(job{}, fmt.Errorf("reader: range of shards %d to %d of %d", r.From, r.To, d.NumShards()))
			return
		}
		for n := r.From; n < r.To; n++ {
			s, err := d.shard(ctx, n)
			if err != nil {
				yield(job{}, err)
				return
			}
			if !s.jobs(whole, yield) {
				return
			}
		}
	}
}

// jobs yields the jobs that read a shard, and false when yield said so.
func (s *shard) jobs(whole bool, yield func(job, error) bool) bool {
	j := job{shard: s, first: s.first}
	for j.from < len(s.rows) {
		s.fill(&j, whole)
		if !yield(j, nil) {
			return false
		}
		j.next()
	}
	return true
}

// fill sets where a job that begins at row from ends: small rows are joined, large ones stand alone.
func (s *shard) fill(j *job, whole bool) {
	stored, decoded := 0, 0
	j.whole = false
	j.to = j.from
	for j.to < len(s.rows) {
		// What cannot be divided: a row, or a block.
		end, st, de := j.to, 0, 0
		for end == j.to || (whole && end < len(s.rows) && s.rows[end].Samples == 0) {
			st, de = st+int(s.rows[end].Stored), de+int(s.rows[end].Decoded)
			end++
		}
		raw := s.rows[j.to].Codec != format.CodecZstd
		if j.to > j.from && (stored+st > fetchMost || decoded+de > decodeMost || end-j.from > rowsMost ||
			end-j.to > 1 || raw != (s.rows[j.from].Codec != format.CodecZstd)) {
			return
		}
		stored, decoded = stored+st, decoded+de
		multiple := end-j.to > 1
		j.to = end
		if multiple {
			j.whole = true
			return
		}
	}
}

// next moves a job to the rows behind it.
func (j *job) next() {
	rows := j.shard.rows
	for i := j.from; i < j.to; i++ {
		j.offset += int64(rows[i].Stored)
		j.before += int64(rows[i].Decoded)
		if i+1 < len(rows) && rows[i+1].Samples > 0 {
			j.first += uint64(blockSamples(rows, i))
			j.block++
			j.before = 0
		}
	}
	j.from = j.to
}
