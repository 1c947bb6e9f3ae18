package fetch

import (
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

const (
	// joinMost is the most stored bytes of small blocks that are read at once from a local store,
	// decodedMost the most decoded bytes of such a read, and rowsMost the most rows. The decoded bytes
	// then fit the second-level cache, as a single block of a little more than 1 MiB does. Eight
	// blocks of 256 KiB together took 5 % more processor time than four. A request to a remote store
	// costs more than that, so farMost is the most there.
	joinMost    = 1 << 20
	decodedMost = 1 << 20
	farMost     = 2 << 20
	rowsMost    = 256
	// remoteMost is the most stored bytes of one request to a remote store: a run of eight blocks,
	// also of ones that do not compress. A request costs time and, at many stores, money.
	remoteMost = 16 << 20
	// sumMost is the most bytes that are read before they are summed, so that they are still in the
	// second-level cache. Reading 1 MiB first was measured to cost a fifth more.
	sumMost = 256 << 10
	// room is how many bytes the decoder needs after the decoded bytes, see codec.DecodeRoom.
	room = 16
)

// Shard describes one shard, from the tables of a data set.
type Shard struct {
	*metadata.ShardInfo
	Object Object // what it is read from
	Number int    // in the data set
	First  uint64 // number of its first sample
	Rows   []format.Row
	// Removed are the numbers of its samples that were removed from the data set, ascending. No path
	// may deliver them.
	Removed []uint64
	// Headers is how many bytes of a decoded sample block.Packed leaves out, counting its key: the
	// mean of the data set.
	Headers int
	marks   []Job // see Mark
}

// Object is what a shard is read from.
type Object struct {
	Source *Source
	// Identity names the stored blocks by their content, for stores that keep them; else it is empty.
	Identity string
	// Unchecked objects are opened whatever their size, because verify has reported a wrong size
	// already.
	Unchecked bool
}

// Gone reports whether a sample was removed from the data set.
func (s *Shard) Gone(number uint64) bool {
	if len(s.Removed) == 0 {
		return false
	}
	_, gone := slices.BinarySearch(s.Removed, number)
	return gone
}

// NumberedKey returns the key of a sample of a shard whose keys are numbered.
func (s *Shard) NumberedKey(number uint64) string {
	return string(s.Numbered.AppendKey(nil, number-s.First))
}

// GoneOf returns the numbers of removed samples among count samples from number first on.
func (s *Shard) GoneOf(first uint64, count uint32) []uint64 {
	return metadata.Within(s.Removed, first, first+uint64(count))
}

// markEvery is how many blocks are from mark to mark.
const markEvery = 32

// Mark notes where some blocks begin, for BlockRange to count from: a stream asks for every block,
// and a shard has a thousand. Call it before others use the shard.
func (s *Shard) Mark() {
	j := Job{Shard: s, First: s.First}
	for i, r := range s.Rows {
		if r.Samples > 0 {
			if j.Block%markEvery == 0 {
				j.From, j.To = i, i
				s.marks = append(s.marks, j)
			}
			j.Block++
		}
		j.Offset += int64(r.Stored)
		j.First += uint64(r.Samples)
	}
}

// BlockRange returns the job of consecutive blocks of the shard.
func (s *Shard) BlockRange(first, count int) Job {
	j, block := Job{Shard: s, First: s.First}, -1
	if k := first / markEvery; k < len(s.marks) {
		j = s.marks[k]
		block = j.Block - 1
	}
	j.Block = first
	for i := j.From; i < len(s.Rows); i++ {
		r := s.Rows[i]
		if r.Samples > 0 {
			block++
		}
		if block == first+count {
			break
		}
		if block < first {
			j.Offset += int64(r.Stored)
			j.First += uint64(r.Samples)
			j.From = i + 1
		}
		j.To = i + 1
	}
	return j
}

// Jobs yields the jobs that read the shard from front to end. whole keeps the rows of a block
// together. It returns false when yield did.
func (s *Shard) Jobs(whole bool, yield func(Job, error) bool) bool {
	j := Job{Shard: s, First: s.First}
	for j.From < len(s.Rows) {
		j.fill(len(s.Rows), whole)
		if !yield(j, nil) {
			return false
		}
		j.next()
	}
	return true
}

// SamplesOf returns the number of samples of the block that row i belongs to.
func (s *Shard) SamplesOf(i int) uint32 {
	for s.Rows[i].Samples == 0 {
		i--
	}
	return s.Rows[i].Samples
}

// Job is consecutive rows of a shard, which one goroutine fetches and decodes at once.
type Job struct {
	Shard    *Shard
	From, To int    // rows
	Block    int    // of row From, in the shard
	Offset   int64  // of row From, in the object
	First    uint64 // number of that block's first sample
	Before   int64  // decoded bytes of that block before row From
	Whole    bool   // the rows are one block, which becomes one frame
}

// Split yields jobs for the rows of j, in order: small rows are joined, large ones stand alone, and
// the rows of a block stay together.
func (j Job) Split() iter.Seq[Job] {
	return func(yield func(Job) bool) {
		end := j.To
		for j.From < end {
			j.fill(end, true)
			if !yield(j) {
				return
			}
			j.next()
		}
	}
}

// Rest yields a job for each block from the block of j to the end of the shard.
func (j Job) Rest() iter.Seq[Job] {
	return func(yield func(Job) bool) {
		rows := j.Shard.Rows
		for block := j; block.From < len(rows); block.next() {
			for block.To = block.From + 1; block.To < len(rows) && rows[block.To].Samples == 0; block.To++ {
			}
			if !yield(block) {
				return
			}
		}
	}
}

// ByRow yields a job for each row of j, for blocks that are too large to be held whole.
func (j Job) ByRow() iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		row := j
		row.Whole = false
		for row.From < j.To {
			row.To = row.From + 1
			if !yield(row, nil) {
				return
			}
			row.next()
		}
	}
}

// fill sets where a job that begins at row From ends, at row end at most.
func (j *Job) fill(end int, whole bool) {
	rows := j.Shard.Rows[:end]
	stored, decoded, most := 0, 0, decodedMost
	if s := j.Shard.Object.Source; s != nil && s.Remote() {
		most = farMost
	}
	j.Whole = false
	j.To = j.From
	for j.To < len(rows) {
		// st and de are the bytes of what cannot be divided: a row, or a block.
		stop, st, de := j.To, 0, 0
		for stop == j.To || (whole && stop < len(rows) && rows[stop].Samples == 0) {
			st, de = st+int(rows[stop].Stored), de+int(rows[stop].Decoded)
			stop++
		}
		raw := rows[j.To].Codec != format.CodecZstd
		if j.To > j.From && (stored+st > joinMost || decoded+de > most || stop-j.From > rowsMost ||
			stop-j.To > 1 || raw != (rows[j.From].Codec != format.CodecZstd)) {
			return
		}
		stored, decoded = stored+st, decoded+de
		multiple := stop-j.To > 1
		j.To = stop
		if multiple {
			j.Whole = true
			return
		}
	}
}

// next moves a job to the rows after it.
func (j *Job) next() {
	rows := j.Shard.Rows
	for i := j.From; i < j.To; i++ {
		j.Offset += int64(rows[i].Stored)
		j.Before += int64(rows[i].Decoded)
		if i+1 < len(rows) && rows[i+1].Samples > 0 {
			j.First += uint64(j.Shard.SamplesOf(i))
			j.Block++
			j.Before = 0
		}
	}
	j.From = j.To
}

// Plan is where the bytes of a job go: all in one buffer.
type Plan struct {
	Stored, Decoded int // bytes of all rows
	Size            int // of the buffer
	largest         int // stored bytes of a row
	inPlace         bool
}

// Plan lays out the buffer of a job.
func (j *Job) Plan() (p Plan) {
	p.inPlace = true
	for _, r := range j.Shard.Rows[j.From:j.To] {
		p.Stored += int(r.Stored)
		p.Decoded += int(r.Decoded)
		p.largest = max(p.largest, int(r.Stored))
		p.inPlace = p.inPlace && r.Codec != format.CodecZstd
	}
	switch {
	case p.inPlace:
		// Frames of raw blocks are longer than what they hold. Decoded where they were read to, each
		// byte moves forward by a few bytes at most, and nothing is overwritten before it was used.
		p.Size = p.Stored + room
	case p.Stored <= j.Shard.Object.Source.joined():
		p.Size = p.Decoded + room // stored bytes go to the goroutine's own scratch, which stays in its cache
	default:
		p.Size = p.Decoded + room + p.largest // and large ones after the decoded ones, a row at a time
	}
	return p
}
