// Package explain reports what a step of a run reads, and where a checkpoint stands. It reads
// tables and, for keys, the indexes or blocks of the samples named; it delivers no samples.
//
//	reader.Run ──Of──▶ Step     counts and shares of each source, then the samples
//	checkpoint ──Checkpoint──▶ Standing     from the checkpoint alone
//
// What a step reads is a function of the order and the position, so any step is explained without
// those before it.
package explain

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sort"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Options choose what a Step contains.
type Options struct {
	// GlobalBatch is the number of samples of a step over all ranks.
	GlobalBatch int
	// World is the number of ranks: each sample gets its rank. 0 is 1.
	World int
	// OneRank lists the samples of Rank alone.
	OneRank bool
	Rank    int
	Keys    bool // read the keys of the samples
	Limit   int  // list at most this number of samples or units; 0 lists all
}

// Step describes what one step reads. Its positions count samples over all epochs and all ranks. It
// begins at Position, and the next one at NextPosition. Epoch is the epoch of the mix or the data
// set, EpochPosition the position in it, and EpochLength its number of samples.
type Step struct {
	Step         uint64 `json:"step"`
	Position     uint64 `json:"position"`
	NextPosition uint64 `json:"next_position"`
	// At is where the step begins, and Next where it ends, for Of.
	At   reader.Place `json:"-"`
	Next reader.Place `json:"-"`

	Epoch         uint64 `json:"epoch"`
	EpochPosition uint64 `json:"epoch_position"`
	EpochLength   uint64 `json:"epoch_length"`
	GlobalBatch   int    `json:"global_batch"` // with padding
	// LeftOut reports that the run leaves the step out. The samples are the ones that the step would
	// read.
	LeftOut bool   `json:"left_out,omitempty"`
	Holds   string `json:"-"` // what a position counts: "sample" or "unit"

	Sources []Source `json:"sources"`
	Samples []Sample `json:"samples"`
	// Units are those listed. The positions, lengths and counts above then count units. It is nil if
	// the step has none.
	Units *Units `json:"units,omitempty"`
}

// Source is one source's part in a step, over all ranks.
type Source = mix.Share

// Stored is where a sample is stored.
type Stored struct {
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"` // in storage order
	Key      string `json:"key,omitempty"`
	KeyBytes []byte `json:"key_base64,omitempty"`
}

// Sample is a sample of a step, in the order of delivery.
type Sample struct {
	Source   string `json:"source,omitempty"`
	Epoch    uint64 `json:"epoch"`
	Position uint64 `json:"position"` // of a mix, over all its epochs
	Rank     int    `json:"rank"`     // that gets it
	Stored
	Seed    uint64 `json:"seed"` // for augmentation. See order.SampleSeed.
	Padding bool   `json:"padding,omitempty"`
	Removed bool   `json:"removed,omitempty"` // it is not delivered. It has no key.
	piece

	source int
}

func (s *Sample) setKey(key string) {
	if s.Key = key; !utf8.ValidString(key) {
		s.KeyBytes = []byte(key)
	}
}

// stepper is one call of Of.
type stepper struct {
	Options
	run *reader.Run
	of  reader.StreamInfo
}

// ErrEnd is returned for a step after the end of the stream.
var ErrEnd = errors.New("the stream ends before this step")

func (o *Options) split() (order.Split, error) {
	o.World = cmp.Or(o.World, 1)
	s := order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}
	if err := s.Check(); err != nil {
		return s, err
	}
	if !o.OneRank {
		s.Rank, s.World = 0, 1
	}
	return s, nil
}

// list fills in the samples of a step.
func (x *stepper) list(ctx context.Context, step *Step, refs []order.Ref, b *order.Batch) error {
	step.GlobalBatch = b.Global
	ranks, rows, err := x.ranks(refs, b)
	if err != nil {
		return err
	}
	refs = x.limited(refs, b.Cuts)
	step.Samples = make([]Sample, len(refs))
	for i := range refs {
		r := &refs[i]
		entry := i
		if b.Cuts != nil {
			entry = int(b.Cuts[i].Unit)
		}
		at, err := x.run.Entry(ctx, reader.Place{Epoch: b.Epoch, Position: b.Position + uint64(b.Entry(entry))}, r)
		if err != nil {
			return err
		}
		key := x.of.Plans[r.Source].Params().Seed
		step.Samples[i] = Sample{
			Source: x.of.Names[r.Source], Epoch: uint64(r.Epoch), Position: at.Position,
			Rank:   ranks[entry],
			Stored: Stored{Number: r.Number}, Seed: order.SampleSeed(key, uint64(r.Epoch), r.Number, r.Draw),
			Padding: r.Padding, source: int(r.Source),
			Removed: x.of.Sources[r.Source].Removed(r.Number),
		}
		if err := x.locate(ctx, &step.Samples[i]); err != nil {
			return x.failed(int(r.Source), err)
		}
	}
	if len(refs) > 0 {
		step.cut(refs, b, x.of.Units, rows)
	}
	if !x.Keys {
		return nil
	}
	return x.readKeys(ctx, step.Samples)
}

// limited returns the references that are listed.
func (x *stepper) limited(refs []order.Ref, cuts []order.Cut) []order.Ref {
	if x.Limit == 0 {
		return refs
	}
	if cuts == nil {
		return refs[:min(len(refs), x.Limit)]
	}
	return refs[:sort.Search(len(refs), func(i int) bool { return int(cuts[i].Unit) >= x.Limit })]
}

// ranks returns the rank of each entry of the batch, or of one rank's part of it, and how many
// entries of that rank come before it.
func (x *stepper) ranks(refs []order.Ref, b *order.Batch) (ranks, rows []int, err error) {
	if x.OneRank {
		for row := range refs { // as many as there are entries, or more
			ranks, rows = append(ranks, x.Rank), append(rows, row)
		}
		return ranks, rows, nil
	}
	of, err := x.run.Ranks(refs, b, x.World)
	had := make([]int, x.World)
	for _, rank := range of {
		ranks, rows = append(ranks, int(rank)), append(rows, had[rank])
		had[rank]++
	}
	return ranks, rows, err
}

// locate finds the shard and the block of a sample.
func (x *stepper) locate(ctx context.Context, s *Sample) error {
	ds := x.of.Sources[s.source]
	at, err := ds.Locate(ctx, s.Number)
	if err != nil {
		return err
	}
	info, err := ds.Shard(ctx, at.Shard)
	s.Shard, s.Block = info.Name, at.Block
	return err
}

// atOnce is how many sources are asked at a time.
const atOnce = 64

// readKeys reads the keys of samples. Sources are read concurrently. It returns the error of the
// first source that has one.
func (x *stepper) readKeys(ctx context.Context, samples []Sample) error {
	numbers, places := make([][]uint64, len(x.of.Sources)), make([][]int, len(x.of.Sources))
	for i := range samples {
		s := &samples[i]
		numbers[s.source], places[s.source] = append(numbers[s.source], s.Number), append(places[s.source], i)
	}
	failed := make([]error, len(x.of.Sources))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for source, wanted := range numbers {
		if len(wanted) == 0 {
			continue
		}
		g.Go(func() error {
			keys, err := x.of.Sources[source].Keys(ctx, wanted)
			for i, key := range keys {
				samples[places[source][i]].setKey(key)
			}
			failed[source] = err
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for source, err := range failed {
		if err != nil {
			return x.failed(source, err)
		}
	}
	return nil
}

// failed adds the source of a mix to an error.
func (x *stepper) failed(source int, err error) error {
	if x.of.Names[source] == "" {
		return err
	}
	return &mix.SourceError{Source: x.of.Names[source], Err: err}
}

// Of explains the step whose batch begins at a place of a run. In a mix it explains the step that
// holds the place. For a step after the end of the run it returns ErrEnd.
func Of(ctx context.Context, run *reader.Run, at reader.Place, o Options) (*Step, error) {
	x := stepper{Options: o, run: run, of: run.Info()}
	x.GlobalBatch = cmp.Or(o.GlobalBatch, x.of.GlobalBatch)
	s, err := x.split()
	if err != nil {
		return nil, err
	}
	cursor, err := run.Whole().Seek(ctx, at, s)
	if err != nil {
		return nil, err
	}
	refs, b, err := cursor.Next(nil)
	if errors.Is(err, io.EOF) {
		return nil, ErrEnd
	}
	if err != nil {
		return nil, err
	}
	step := &Step{Epoch: b.Epoch, Holds: x.of.Holds, At: reader.Place{Epoch: b.Epoch, Position: b.Position},
		Next: reader.Place{Epoch: b.NextEpoch, Position: b.NextPosition}}
	if step.Step, step.Position, err = run.Number(ctx, step.At, x.GlobalBatch); err != nil {
		return nil, err
	}
	if _, step.NextPosition, err = run.Number(ctx, step.Next, x.GlobalBatch); err != nil {
		return nil, err
	}
	if step.EpochLength, err = run.Length(ctx, b.Epoch); err != nil {
		return nil, err
	}
	step.EpochPosition = b.Position % max(step.EpochLength, 1)
	for _, r := range x.of.LeftOut {
		step.LeftOut = step.LeftOut || r.From <= step.Position && step.Position < r.To
	}
	if err := x.list(ctx, step, refs, &b); err != nil {
		return nil, err
	}
	step.Sources, err = run.Shares(&b, step.Position, step.NextPosition)
	return step, err
}
