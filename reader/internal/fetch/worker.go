package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/block"
)

// Result is a frame, or the error in its place. A frame is a block of ordinary size, or a part of a
// larger one.
type Result struct {
	Shard *Shard
	// Block is the block's number in the shard, Row the frame's in Shard.Rows.
	Block, Row int
	// Offset is where the Stored bytes of the frame begin in the object. BlockOffset is where its
	// decoded bytes begin in the block: 0 in the first frame.
	Offset, BlockOffset int64
	Stored              int
	// First is the number of the block's first sample. Samples is how many the block has, in its first
	// frame; 0 in the frames that continue it.
	First   uint64
	Samples int
	Last    bool // the block ends with this frame
	Decoded []byte
	Err     error
}

// Kind returns how the samples of the result's block are stored.
func (r *Result) Kind() block.Kind { return r.Shard.Kind(r.First) }

// Kind returns how the samples of a block are stored, whose first one has that number in the data
// set.
func (s *Shard) Kind(first uint64) block.Kind {
	return block.Kind{Foreign: s.Foreign, Layout: s.Layout, Numbered: s.Numbered, Before: first - s.First}
}

// Worker fetches, checks and decodes jobs. It is for one goroutine.
type Worker struct {
	// Exactly one of the two is set. Scratch is the goroutine's own. A Flight lends scratch for
	// decoding alone.
	Scratch *Scratch
	Flight  *Flight
	// KeepGoing continues with the next row after an error; otherwise the first error is a job's last
	// result.
	KeepGoing bool
	// Check, when not nil, is called with every result that is right so far; its error replaces it.
	Check func(*Result) error
	// Take, when not nil, is called with every row that is right, and with the number of decoded bytes
	// of the job before it. The row is decoded in memory of the goroutine, which stays in the cache,
	// and not in the buffer of the job, which Run leaves alone: Take keeps what is needed of it, there
	// or elsewhere. A second read calls it again, from the first row on. It is only for jobs of whole
	// blocks, and not with a Flight if blocks are stored raw.
	Take func(r *Result, before int)
	// Account records the progress of a stream's job; it may be nil. Rereads, when not nil, is called
	// for each job that is read a second time.
	Account *account.Worker
	Rereads func()

	anew bool // read past what a store has kept
}

// Run appends the results of a job to out. buf has p.Size bytes. Damage in the results has been
// confirmed by a second read.
func (w *Worker) Run(ctx context.Context, j *Job, p Plan, buf []byte, out []Result) []Result {
	before := len(out)
	_ = j.Shard.Object.Source.Twice(ctx, j.Shard.key(), func(anew bool) error { // errors are in out
		if w.anew = anew; anew && w.Rereads != nil {
			w.Rereads()
		}
		out = w.run(ctx, j, p, buf, out[:before])
		for i := range out[before:] {
			if err := out[before+i].Err; Damaged(err) {
				return err
			}
		}
		return nil
	})
	w.anew = false
	return out
}

func (w *Worker) run(ctx context.Context, j *Job, p Plan, buf []byte, out []Result) []Result {
	w.Account.At(account.Reading)
	source := j.Shard.Object.Source
	h, err := source.open(ctx, j.Shard)
	if err != nil {
		return append(out, j.failed(err))
	}
	defer source.objects.release(h)
	r := rows{Worker: w, handle: h, job: j, inPlace: p.inPlace && w.Take == nil, buf: buf}
	each := p.Stored > source.joined() && !p.inPlace
	switch {
	case w.Take != nil && w.Flight == nil && (p.inPlace || each):
		r.at = w.Scratch.hold(p.largest)
		return r.takeTurn(ctx, out) // which reads each row
	case each && w.Take == nil:
		r.at = buf[p.Decoded+room:]
		return r.takeTurn(ctx, out)
	case p.inPlace && !source.Remote() && p.Stored >= sumMost*(j.To-j.From):
		r.at = buf[:p.Stored]
		return r.takeTurn(ctx, out) // which reads each row, and sums it meanwhile
	case p.inPlace:
		r.at = buf[:p.Stored]
	case w.Flight != nil:
		w.Account.At(account.Room)
		if r.at, err = w.Flight.buffers.Get(ctx, p.Stored); err != nil {
			return append(out, j.failed(err))
		}
		defer func(b []byte) { w.Flight.buffers.Put(b) }(r.at)
	default:
		r.at = w.Scratch.hold(p.Stored)
	}
	switch err := r.read(ctx, r.at, j.Offset, j.Shard.Rows[j.From:j.To]...); {
	case err == nil:
		r.fetched = true
	case !w.KeepGoing || j.To-j.From == 1 || (source.Remote() && !Damaged(err)):
		return append(out, j.failed(err))
	}
	// With an error and KeepGoing, one of the rows cannot be read: each is tried alone.
	return r.takeTurn(ctx, out)
}

// failed returns the result of a job that could not be read.
func (j *Job) failed(err error) Result {
	return Result{
		Shard: j.Shard, Block: j.Block, Row: j.From, Offset: j.Offset, First: j.First,
		Err: format.Place{Shard: j.Shard.Name, Block: j.Block, Offset: j.Offset}.Wrap(err),
	}
}

// rows takes the rows of a job one after the other.
type rows struct {
	*Worker
	handle *handle
	job    *Job
	// at is where the stored bytes of the rows to come are if they were fetched, or else where they
	// are read to.
	at      []byte
	fetched bool
	inPlace bool
	buf     []byte // decoded bytes go to its beginning
}

// takeTurn decodes the rows once it is this goroutine's turn.
func (r *rows) takeTurn(ctx context.Context, out []Result) []Result {
	if r.Flight == nil {
		return r.run(ctx, r.Scratch, out)
	}
	s, err := r.Flight.Take(ctx)
	if err != nil {
		return append(out, r.job.failed(err))
	}
	defer r.Flight.Done(s)
	r.Account.Turn()
	return r.run(ctx, s, out)
}

// read reads from the object. An object shorter than the tables say is damaged; where its size was
// not asked for, the read finds that out.
func (r *rows) read(ctx context.Context, p []byte, offset int64, of ...format.Row) error {
	r.Account.At(account.Reading)
	err := r.handle.read(ctx, p, offset, r.anew, of...)
	r.Account.At(account.Decoding)
	if r.job.Shard.Object.Source.Remote() && errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, objstore.ErrChanged) {
		return &KindError{KindTruncated, fmt.Errorf("%w: the object is shorter than %s says: %w", format.ErrCorrupt,
			r.job.Shard.Object.Source.Tables, err)}
	}
	return err
}

func (r *rows) run(ctx context.Context, s *Scratch, out []Result) []Result {
	j, all := r.job, r.job.Shard.Rows
	next := Result{Shard: j.Shard, Block: j.Block, Offset: j.Offset, BlockOffset: j.Before, First: j.First}
	decoded, before := 0, len(out)
	for i := j.From; i < j.To; i++ {
		row := all[i]
		out = append(out, next)
		res := &out[len(out)-1] // not a variable: it would be allocated, for Check and Take
		res.Row, res.Samples, res.Stored = i, int(row.Samples), int(row.Stored)
		res.Last = i+1 == len(all) || all[i+1].Samples > 0
		stored, err := r.next(ctx, row, res.Offset)
		if err == nil {
			res.Decoded, err = r.decode(s, r.place(s, decoded, stored, row), stored, row)
		}
		switch {
		case err != nil:
			res.Err = r.explain(res.Block, res.Offset, err)
		case r.Check != nil && !j.Whole:
			res.Err = r.Check(res)
		}
		if res.Err != nil && j.Whole {
			return append(out[:before], *res)
		}
		if res.Err == nil && r.Take != nil {
			r.Take(res, decoded)
			res.Decoded = nil
		}
		if res.Err != nil && !r.KeepGoing {
			return out
		}
		decoded += int(row.Decoded)
		next.Offset += int64(row.Stored)
		next.BlockOffset += int64(row.Decoded)
		if res.Last {
			next.First += uint64(j.Shard.SamplesOf(i))
			next.Block++
			next.BlockOffset = 0
		}
	}
	if j.Whole {
		// The rows lie one after the other: they are one frame now.
		out = out[:before+1]
		head := &out[before]
		head.Decoded, head.Last, head.Stored = r.buf[:decoded:decoded], true, int(next.Offset-j.Offset)
		if r.Check != nil {
			head.Err = r.Check(head)
		}
	}
	return out
}

// next returns a row's stored bytes, compared with their checksum.
func (r *rows) next(ctx context.Context, row format.Row, offset int64) ([]byte, error) {
	stored := r.at[:row.Stored]
	if r.fetched || r.inPlace {
		r.at = r.at[row.Stored:]
	}
	step := len(stored)
	if !r.fetched && !r.job.Shard.Object.Source.Remote() {
		step = sumMost
	}
	sum := uint32(0)
	for rest := stored; len(rest) > 0; {
		p := rest[:min(step, len(rest))]
		if !r.fetched {
			if err := r.read(ctx, p, offset); err != nil {
				return nil, err
			}
		}
		sum = codec.UpdateChecksum(sum, p)
		rest, offset = rest[len(p):], offset+int64(len(p))
	}
	if err := codec.CheckFrameSum(sum, row); err != nil {
		return nil, OfKind(KindChecksum, err)
	}
	return stored, nil
}

// place returns the memory into which a row is decoded.
func (r *rows) place(s *Scratch, before int, stored []byte, row format.Row) []byte {
	switch {
	case r.Take == nil:
		return r.buf[before:before]
	case row.Codec != format.CodecZstd:
		return stored[:0]
	}
	if need := int(row.Decoded) + room; cap(s.Decoded) < need {
		s.Decoded = make([]byte, 0, need+need/8)
	}
	return s.Decoded[:0]
}

// decode decodes a row's stored bytes to dst, whose memory may be theirs.
func (r *rows) decode(s *Scratch, dst, stored []byte, row format.Row) ([]byte, error) {
	if row.Codec == format.CodecBytes && cap(dst) > 0 && &dst[:1][0] == &stored[0] {
		return stored[:len(stored):len(stored)], nil
	}
	out, err := s.decoder.decode(dst, stored, row)
	if err != nil {
		return nil, OfKind(KindDecode, err)
	}
	return out, nil
}

// explain adds the position to an error. It also says that the object was replaced, if that is why
// its bytes do not fit.
func (r *rows) explain(block int, offset int64, err error) error {
	if errors.Is(err, format.ErrCorrupt) && r.job.Shard.Object.Source.objects.replaced(r.handle) {
		err = fmt.Errorf("%w: %w", err, objstore.ErrChanged)
	}
	return format.Place{Shard: r.job.Shard.Name, Block: block, Offset: offset}.Wrap(err)
}
