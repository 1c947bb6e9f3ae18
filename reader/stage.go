package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

const (
	// fetchMost is the most stored bytes that are joined into one read.
	fetchMost = 1 << 20
	// decodeMost is the most decoded bytes of such a read; rowsMost bounds the rows of blocks that are tiny. A block of
	// ordinary size, 1 MiB and a little, is read alone: it fits the second-level cache, and three together were measured to
	// be 4 % slower.
	decodeMost = 2 << 20
	rowsMost   = 256
	// sumMost is the most bytes that are read before they are summed: they are in the second-level
	// cache then. Reading 1 MiB first was measured to cost a fifth more.
	sumMost = 256 << 10
	// room is what the decoder wants behind the decoded bytes, see format.DecodeRoom.
	room = 16
)

// job is what one goroutine fetches and decodes at once: consecutive rows of a shard, as large as planned by whoever
// decides the order.
type job struct {
	shard    *shard
	from, to int    // rows
	block    int    // block of row from, in the shard
	offset   int64  // of row from, in the object
	first    uint64 // number of that block's first sample
	before   int64  // decoded bytes of that block before row from
	// whole: the rows are one block, handed over as one frame.
	whole bool
}

// plan is where a job's bytes go: all in one buffer.
type plan struct {
	stored, decoded int // of all rows
	largest         int // stored bytes of the largest row
	inPlace         bool
	size            int // of the buffer
}

// plan is made for reads of so many stored bytes at most.
func (j *job) plan(most int) (p plan) {
	p.inPlace = true
	for _, r := range j.shard.rows[j.from:j.to] {
		p.stored += int(r.Stored)
		p.decoded += int(r.Decoded)
		p.largest = max(p.largest, int(r.Stored))
		p.inPlace = p.inPlace && r.Codec != format.CodecZstd
	}
	switch {
	case p.inPlace:
		// Frames of raw blocks are longer than what they hold: decoded where they were read to, each byte moves forward by
		// a few bytes at most, and nothing is overwritten before it was used.
		p.size = p.stored + room
	case p.stored <= most:
		p.size = p.decoded + room // stored bytes go to the goroutine's own scratch, which stays in its cache
	default:
		p.size = p.decoded + room + p.largest // and large ones behind the decoded ones, a row at a time
	}
	return p
}

// result is a frame or why there is none.
type result struct {
	Frame
	err error
}

// stage fetches, checks and decodes jobs. It is for one goroutine.
type stage struct {
	d *Dataset
	*scratch
	// flight, when not nil, has the scratch: one is held only for decoding.
	flight *flight
	// keepGoing goes on with the next row after an error; otherwise the first error is a job's last result.
	keepGoing bool
	// check runs on every frame that is right so far.
	check func(*Frame) error
	// anew reads past what a store has kept: its bytes looked damaged.
	anew bool
	// rereads, of streams, counts the jobs that were read a second time.
	rereads *atomic.Uint64
	// follow, of streams, is told what the job is at.
	follow *follow
}

// run appends the results of a job to out. buf has plan().size bytes. Damage has been confirmed by
// Dataset.twice.
func (s *stage) run(ctx context.Context, j *job, p plan, buf []byte, out []result) []result {
	before := len(out)
	_ = s.d.twice(ctx, s.key(j.shard), func(anew bool) error { // errors are in out
		if s.anew = anew; anew && s.rereads != nil {
			s.rereads.Add(1)
		}
		out = s.try(ctx, j, p, buf, out[:before])
		for i := range out[before:] {
			if err := out[before+i].err; isDamage(err) {
				return err
			}
		}
		return nil
	})
	s.anew = false
	return out
}

func (s *stage) try(ctx context.Context, j *job, p plan, buf []byte, out []result) []result {
	s.follow.at(pieceReading)
	h, err := s.object(ctx, j.shard)
	if err != nil {
		return append(out, s.failed(j, j.from, j.block, j.offset, err))
	}
	defer s.d.objects.release(h)
	r := rowReader{stage: s, handle: h, job: j, inPlace: p.inPlace, buf: buf}
	if !p.inPlace && p.stored > s.d.joined() {
		r.at = buf[p.decoded+room:]
		return s.decodes(ctx, &r, out)
	}
	switch {
	case p.inPlace && !s.d.objects.remote && p.stored >= sumMost*(j.to-j.from):
		r.at = buf[:p.stored]
		return s.decodes(ctx, &r, out) // which reads each row, and sums it meanwhile
	case p.inPlace:
		r.at = buf[:p.stored]
	case s.flight != nil:
		s.follow.at(pieceRoom)
		if r.at, err = s.flight.take(ctx, p.stored); err != nil {
			return append(out, s.failed(j, j.from, j.block, j.offset, err))
		}
		defer func(b []byte) { s.flight.give(b) }(r.at)
	default:
		if cap(s.stored) < p.stored {
			s.stored = make([]byte, p.stored+p.stored/4)
		}
		r.at = s.stored[:p.stored]
	}
	switch err := s.read(ctx, h, r.at, j.offset); {
	case err == nil:
		r.fetched = true
	case !s.keepGoing || j.to-j.from == 1 || (s.d.objects.remote && !isDamage(err)):
		return append(out, s.failed(j, j.from, j.block, j.offset, err))
	}
	// With an error and keepGoing, one of the rows cannot be read: each is tried alone.
	return s.decodes(ctx, &r, out)
}

// read reads from an object. One that is shorter than the tables say is damage; where its size was not asked for, this is where
// that comes out.
func (s *stage) read(ctx context.Context, h *handle, p []byte, offset int64) error {
	s.follow.at(pieceReading)
	err := h.read(ctx, p, offset, s.anew)
	s.follow.at(pieceDecoding)
	if s.d.objects.remote && errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, objstore.ErrChanged) {
		return kindError{KindTruncated, fmt.Errorf("%w: the object is shorter than %s says: %w", format.ErrCorrupt, s.d.name, err)}
	}
	return err
}

// decodes takes a turn for the rows where there are more goroutines than workers.
func (s *stage) decodes(ctx context.Context, r *rowReader, out []result) []result {
	if s.flight != nil {
		turn, err := s.flight.decode(ctx)
		if err != nil {
			return append(out, s.failed(r.job, r.job.from, r.job.block, r.job.offset, err))
		}
		s.follow.turn()
		s.scratch = turn
		defer func() { s.flight.done(turn) }()
	}
	return r.run(ctx, out)
}

// object opens a shard. Verify has compared its size, and reads what is there of one that has another.
func (s *stage) object(ctx context.Context, of *shard) (*handle, error) {
	size := of.Size
	if of.check != nil {
		size = 0
	}
	key := s.key(of)
	return s.d.shardObject(ctx, key.name, size, key.identity)
}

// key is what object opens a shard by.
func (s *stage) key(of *shard) handleKey {
	if of.check != nil {
		return handleKey{name: of.Name}
	}
	return handleKey{of.Name, of.identity}
}

// rowReader takes a job's rows one after the other.
type rowReader struct {
	*stage
	handle *handle
	job    *job
	// at is where the stored bytes of the rows to come are, when fetched, or where they are to be read to.
	at      []byte
	fetched bool
	inPlace bool
	buf     []byte // decoded bytes go to its beginning
}

func (r *rowReader) run(ctx context.Context, out []result) []result {
	j, rows := r.job, r.job.shard.rows
	next := Frame{
		Shard: j.shard.number, Block: j.block, Offset: j.offset, BlockOffset: j.before, FirstSample: j.first, shard: j.shard,
	}
	decoded := 0
	for i := j.from; i < j.to; i++ {
		row := rows[i]
		res := result{Frame: next}
		res.Row, res.Samples, res.Stored = i, int(row.Samples), int(row.Stored)
		res.Last = i+1 == len(rows) || rows[i+1].Samples > 0
		stored, err := r.next(ctx, row, res.Offset)
		if err == nil {
			res.Decoded, err = r.decode(r.buf[decoded:decoded], stored, row)
		}
		switch {
		case err != nil:
			res.err = r.explain(j, r.handle, res.Block, res.Offset, err)
		case r.check != nil && !j.whole:
			res.err = r.check(&res.Frame)
		}
		if res.err != nil && j.whole {
			return append(out[:0], res)
		}
		out = append(out, res)
		if res.err != nil && !r.keepGoing {
			return out
		}
		decoded += int(row.Decoded)
		next.Offset += int64(row.Stored)
		next.BlockOffset += int64(row.Decoded)
		if res.Last {
			next.FirstSample += uint64(blockSamples(rows, i))
			next.Block++
			next.BlockOffset = 0
		}
	}
	if j.whole {
		// The rows lie one after the other: they are one frame now.
		head := out[0]
		head.Decoded, head.Last, head.Stored = r.buf[:decoded:decoded], true, int(next.Offset-j.offset)
		if r.check != nil {
			head.err = r.check(&head.Frame)
		}
		out = append(out[:0], head)
	}
	return out
}

// next returns a row's stored bytes, compared with their checksum.
func (r *rowReader) next(ctx context.Context, row format.Row, offset int64) ([]byte, error) {
	stored := r.at[:row.Stored]
	if r.fetched || r.inPlace {
		r.at = r.at[row.Stored:]
	}
	step := len(stored)
	if !r.fetched && !r.d.objects.remote {
		step = sumMost
	}
	sum, summed := uint32(0), !r.d.opts.Unverified || r.keepGoing
	for rest := stored; len(rest) > 0; {
		p := rest[:min(step, len(rest))]
		if !r.fetched {
			if err := r.read(ctx, r.handle, p, offset); err != nil {
				return nil, err
			}
		}
		if summed {
			sum = format.UpdateChecksum(sum, p)
		}
		rest, offset = rest[len(p):], offset+int64(len(p))
	}
	if summed {
		if err := format.CheckFrameSum(sum, row); err != nil {
			return nil, ofKind(KindChecksum, err)
		}
	}
	return stored, nil
}

// blockSamples is the number of samples of the block that row i belongs to.
func blockSamples(rows []format.Row, i int) uint32 {
	for rows[i].Samples == 0 {
		i--
	}
	return rows[i].Samples
}

// decode decodes a row's stored bytes to dst, whose memory may be theirs.
func (s *stage) decode(dst, stored []byte, r format.Row) ([]byte, error) {
	if r.Codec == format.CodecBytes && cap(dst) > 0 && &dst[:1][0] == &stored[0] {
		return stored[:len(stored):len(stored)], nil
	}
	out, err := s.decoder.decode(dst, stored, r)
	if err != nil {
		return nil, ofKind(KindDecode, err)
	}
	return out, nil
}

// failed is the result of a row that could not be read.
func (s *stage) failed(j *job, row, block int, offset int64, err error) result {
	return result{
		Frame: Frame{Shard: j.shard.number, Block: block, Row: row, Offset: offset, FirstSample: j.first, shard: j.shard},
		err:   format.Position(err, j.shard.Name, block, offset, ""),
	}
}

// explain adds the place, and that the object was replaced where that is why its bytes do not fit.
func (s *stage) explain(j *job, h *handle, block int, offset int64, err error) error {
	if errors.Is(err, format.ErrCorrupt) && s.d.objects.replaced(h) {
		err = fmt.Errorf("%w: %w", err, objstore.ErrChanged)
	}
	return format.Position(err, j.shard.Name, block, offset, "")
}

// decoder is a format.Decoder that outlives a panic of the library below it.
type decoder struct{ d *format.Decoder }

// newDecoder leaves the frames' own xxh64 alone: the CRC-32C of the stored bytes says as much and costs less.
func newDecoder() *decoder { return &decoder{format.NewDecoder(false)} }

func (d *decoder) close() { d.d.Close() }

func (d *decoder) decode(dst, stored []byte, r format.Row) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.d = format.NewDecoder(false) // the old one may be in the middle of anything
			out, err = nil, fmt.Errorf("%w: the decoder failed: %v", format.ErrCorrupt, p)
		}
	}()
	return d.d.Decode(dst, stored, r)
}
