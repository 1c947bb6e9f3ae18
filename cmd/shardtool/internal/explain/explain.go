// Package explain reports what a step of a run reads, and where a checkpoint stands. It reads
// tables and, for keys, the indexes or blocks of the samples named; it delivers no samples.
//
//	reader.Mix ──Mix──▶ Step     counts and shares of each source, then the samples
//	data set   ──Dataset, DatasetUnits──▶ Step
//	checkpoint ──Checkpoint──▶ Standing     from the checkpoint alone
//
// What a step reads is a function of the order and the position, so any step is explained without
// those before it.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/units"
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

// Step is what one step reads. Its positions count samples over all epochs and all ranks.
type Step struct {
	Step uint64 `json:"step"`
	// Position is that of the step's first sample, NextPosition that of the next step's.
	Position     uint64 `json:"position"`
	NextPosition uint64 `json:"next_position"`
	// Epoch is that of the mix or the data set, EpochPosition the position in it, and EpochLength its
	// samples.
	Epoch         uint64 `json:"epoch"`
	EpochPosition uint64 `json:"epoch_position"`
	EpochLength   uint64 `json:"epoch_length"`
	GlobalBatch   int    `json:"global_batch"` // samples of this step, padding included
	// LeftOut: a run leaves the step out, as its checkpoint or its user asks. The samples are those
	// that it would read.
	LeftOut bool     `json:"left_out,omitempty"`
	Sources []Source `json:"sources"`
	Samples []Sample `json:"samples"`
	// Units, when not nil: the step has units, and positions, lengths and counts above are theirs.
	Units *Units `json:"units,omitempty"`
}

// Source is one source's part in a step, over all ranks. A data set that is read alone has one
// source without a name.
type Source struct {
	Name    string  `json:"source,omitempty"`
	Samples uint64  `json:"samples"` // of an epoch of the source
	Share   float64 `json:"share"`   // that its weight asks for in this step
	// Given is the samples that the source gave before the step, and GivenShare their share of all.
	Given      uint64  `json:"given"`
	GivenShare float64 `json:"given_share"`
	// InStep is the samples of the step, without padding, and StepShare their share of it.
	InStep    uint64  `json:"in_step"`
	StepShare float64 `json:"step_share"`
	// Epoch and Place are the source's epoch and the place in it of its next sample when the step
	// begins; LastEpoch is the epoch of its last sample in the step.
	Epoch     uint64 `json:"epoch"`
	Place     uint64 `json:"place"`
	LastEpoch uint64 `json:"last_epoch"`
}

// Sample is a sample of a step, in the order of delivery.
type Sample struct {
	Source string `json:"source,omitempty"`
	Epoch  uint64 `json:"epoch"` // of the source
	// Position counts over all epochs of a mix; in one data set it is the place in the epoch.
	Position uint64 `json:"position"`
	Rank     int    `json:"rank"`
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"` // in storage order
	Key      string `json:"key,omitempty"`
	KeyBytes []byte `json:"key_base64,omitempty"` // of a key that is not UTF-8
	Seed     uint64 `json:"seed"`                 // for what a program draws at random, see order.SampleSeed
	Padding  bool   `json:"padding,omitempty"`
	// Removed: the sample was removed from its data set. It is not delivered, and has no key.
	Removed bool `json:"removed,omitempty"`
	piece

	source int
}

func (s *Sample) setKey(key string) {
	if s.Padding {
		return
	}
	if s.Key = key; !utf8.ValidString(key) {
		s.KeyBytes = []byte(key)
	}
}

// stepper is one call of Mix or Dataset.
type stepper struct {
	Options
	sets   []*reader.Dataset // by source
	tables []order.Table
	keys   []uint64 // of the sources' random words
	names  []string
	units  []units.Params // of the sources; none where positions hold samples
}

// batch is a rank's part of a step as cursors of both kinds give it.
type batch func(s order.Split) ([]order.Ref, order.Batch, error)

// ErrEnd is the error of a step after the end of the stream.
var ErrEnd = errors.New("explain: the stream ends before this step")

func (o *Options) split() (order.Split, error) {
	if o.World == 0 {
		o.World = 1
	}
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
func (x *stepper) list(ctx context.Context, step *Step, next batch, s order.Split) error {
	refs, b, err := next(s)
	if errors.Is(err, io.EOF) {
		return ErrEnd
	}
	if err != nil {
		return err
	}
	step.GlobalBatch = b.Global
	refs = x.limited(refs, b.Cuts)
	step.Samples = make([]Sample, len(refs))
	for i := range refs {
		r := &refs[i]
		at := b.First + i
		if b.Cuts != nil {
			at = b.First + int(b.Cuts[i].Unit)
		}
		step.Samples[i] = Sample{
			Source: x.names[r.Source], Epoch: uint64(r.Epoch), Position: step.Position + uint64(at), Rank: rankOf(uint64(at), uint64(b.Global), x.World),
			Number: r.Number, Seed: order.SampleSeed(x.keys[r.Source], uint64(r.Epoch), r.Number, r.Draw), Padding: r.Padding, source: int(r.Source),
			Removed: !r.Padding && x.sets[r.Source].Removed(r.Number),
		}
		if err := x.locate(ctx, &step.Samples[i], int(r.Block)); err != nil {
			return x.failed(int(r.Source), err)
		}
	}
	if len(refs) > 0 {
		step.cut(refs, &b, x.params(refs[0].Source), x.World)
	}
	if !x.Keys {
		return nil
	}
	return x.readKeys(ctx, step.Samples)
}

// limited is the references that are listed.
func (x *stepper) limited(refs []order.Ref, cuts []order.Cut) []order.Ref {
	if x.Limit == 0 {
		return refs
	}
	if cuts == nil {
		return refs[:min(len(refs), x.Limit)]
	}
	return refs[:sort.Search(len(refs), func(i int) bool { return int(cuts[i].Unit) >= x.Limit })]
}

// rankOf is the rank of entry i of a batch: the last one whose part begins at i or before.
func rankOf(i, batch uint64, world int) int {
	return sort.Search(world, func(r int) bool { return uint64(r+1)*batch/uint64(world) > i })
}

// locate finds the shard of a block, which the order numbers over the whole data set.
func (x *stepper) locate(ctx context.Context, s *Sample, block int) error {
	first := x.tables[s.source].ShardFirst
	shard := sort.Search(len(first), func(i int) bool { return first[i] > block }) - 1
	info, err := x.sets[s.source].Shard(ctx, shard)
	s.Shard, s.Block = info.Name, block-first[shard]
	return err
}

// readKeys reads the keys of samples. Sources are read concurrently.
func (x *stepper) readKeys(ctx context.Context, samples []Sample) error {
	numbers, places := make([][]uint64, len(x.sets)), make([][]int, len(x.sets))
	for i := range samples {
		s := &samples[i]
		numbers[s.source], places[s.source] = append(numbers[s.source], s.Number), append(places[s.source], i)
	}
	return x.each(func(source int) error {
		if len(numbers[source]) == 0 {
			return nil
		}
		keys, err := x.sets[source].Keys(ctx, numbers[source])
		for i, key := range keys {
			samples[places[source][i]].setKey(key)
		}
		return err
	})
}

// atOnce is how many sources are asked at a time.
const atOnce = 64

// each calls f for each source, concurrently. The error is that of the first source that has one.
func (x *stepper) each(f func(source int) error) error {
	failed := make([]error, len(x.sets))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for source, ds := range x.sets {
		if ds != nil {
			g.Go(func() error {
				failed[source] = f(source)
				return nil
			})
		}
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
	if x.names[source] == "" {
		return err
	}
	return fmt.Errorf("explain: %w", &mix.SourceError{Source: x.names[source], Err: err})
}

// CheckDigest returns an error that is an order.ErrMismatch for a data set with another digest than
// a run's.
func CheckDigest(ds *reader.Dataset, digest string) error {
	if have := format.DigestString(ds.Digest()); have != digest {
		return &otherDataError{have, digest}
	}
	return nil
}

// otherDataError is a data set that is not the run's. It is an order.ErrMismatch.
type otherDataError struct{ have, want string }

// Error names both digests.
func (e *otherDataError) Error() string {
	return fmt.Sprintf("the data set has digest %s, the run read %s: open that generation", e.have, e.want)
}

// Is makes errors.Is(err, order.ErrMismatch) true.
func (e *otherDataError) Is(target error) bool { return target == order.ErrMismatch }

// loadTables reads what the orders need.
func (x *stepper) loadTables(ctx context.Context) error {
	x.tables = make([]order.Table, len(x.sets))
	return x.each(func(source int) (err error) {
		x.tables[source], err = x.sets[source].OrderTable(ctx)
		return err
	})
}

// Mix explains a step of a mix: the one that holds position at of the mix, as Mix.Position of
// package mix finds it. m.Steps numbers it; m.LeftOut marks it. A step after the end of the stream
// is ErrEnd.
func Mix(ctx context.Context, m reader.Mix, at uint64, o Options) (*Step, error) {
	s, err := o.split()
	if err != nil {
		return nil, err
	}
	p := m.Plan.Mix()
	x := stepper{Options: o, sets: m.Sets}
	for i := range p.Sources {
		x.names, x.keys = append(x.names, p.Sources[i].Name), append(x.keys, mix.Key(p.Seed, p.Sources[i].Name))
		x.units = append(x.units, p.Sources[i].Unit)
		if ds := m.Sets[i]; ds != nil {
			if err := CheckDigest(ds, p.Sources[i].Digest); err != nil {
				return nil, x.failed(i, err)
			}
		}
	}
	if err := x.loadTables(ctx); err != nil {
		return nil, err
	}
	var orders []*order.Plan
	if !p.InUnits() {
		if orders, err = p.Orders(x.tables); err != nil {
			return nil, err
		}
	}
	cursor, err := m.Plan.Seek(at, orders)
	if err != nil {
		return nil, err
	}
	step := &Step{Position: at}
	next := func(s order.Split) ([]order.Ref, order.Batch, error) {
		refs, b, err := cursor.NextBatch(nil, s)
		step.Position, step.NextPosition = b.Position, b.NextPosition
		return refs, b, err
	}
	if err := x.list(ctx, step, next, s); err != nil {
		return nil, err
	}
	step.Epoch, step.EpochPosition, step.EpochLength = step.Position/p.Epoch, step.Position%p.Epoch, p.Epoch
	for _, r := range m.LeftOut {
		step.LeftOut = step.LeftOut || r.From <= step.Position && step.Position < r.To
	}
	steps := m.Steps
	if steps.GlobalBatch == 0 {
		steps.GlobalBatch = o.GlobalBatch
	}
	if step.Step, err = p.Step(steps, step.Position); err != nil {
		return nil, err
	}
	step.Sources, err = shares(m.Plan, step.Position, step.NextPosition)
	return step, err
}

// shares are the parts of all sources in the positions from ≤ g < to.
func shares(plan *mix.Plan, from, to uint64) ([]Source, error) {
	before, err := plan.Counts(nil, from)
	if err != nil {
		return nil, err
	}
	after, err := plan.Counts(nil, to)
	if err != nil {
		return nil, err
	}
	weights, err := plan.Weights(from)
	if err != nil {
		return nil, err
	}
	p := plan.Mix()
	var sources []Source
	for i := range p.Sources {
		s := Source{Name: p.Sources[i].Name, Samples: p.Sources[i].Units, Given: before[i], InStep: after[i] - before[i]}
		s.Share, s.GivenShare, s.StepShare = part(weights[i], sum(weights)), part(before[i], from), part(s.InStep, to-from)
		if s.Samples > 0 {
			if s.Epoch, s.Place, err = p.Sources[i].Place(before[i]); err != nil {
				return nil, err
			}
			s.LastEpoch = s.Epoch
			if s.InStep > 0 {
				if s.LastEpoch, _, err = p.Sources[i].Place(after[i] - 1); err != nil {
					return nil, err
				}
			}
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// Dataset explains a step of one data set: the one that begins at a position of an epoch of the
// order. A step after the end of the order is ErrEnd.
func Dataset(ctx context.Context, ds *reader.Dataset, plan *order.Plan, epoch, position uint64, o Options) (*Step, error) {
	s, err := o.split()
	if err != nil {
		return nil, err
	}
	x := stepper{Options: o, sets: []*reader.Dataset{ds}, names: []string{""}, keys: []uint64{plan.Params().Seed}}
	if err := x.loadTables(ctx); err != nil {
		return nil, err
	}
	cursor, err := plan.Seek(epoch, position)
	if err != nil {
		return nil, err
	}
	n := plan.Samples()
	step := &Step{EpochLength: n}
	var whole order.Batch
	next := func(s order.Split) ([]order.Ref, order.Batch, error) {
		refs, b, err := cursor.NextBatch(nil, s)
		whole = b
		step.Epoch, step.EpochPosition, step.Position = b.Epoch, b.Position, b.Epoch*n+b.Position
		step.NextPosition = b.NextEpoch*n + b.NextPosition
		return refs, b, err
	}
	if err := x.list(ctx, step, next, s); err != nil {
		return nil, err
	}
	for i := range step.Samples {
		if r := &step.Samples[i]; r.Padding {
			r.Position -= step.Epoch * n
		} else {
			r.Position %= n
		}
	}
	if step.Step, err = DatasetSteps(plan).Step(mix.Steps{GlobalBatch: o.GlobalBatch}, step.Position); err != nil {
		return nil, err
	}
	only := Source{Samples: n, Share: 1, Given: step.Position, InStep: step.NextPosition - step.Position, StepShare: 1, Epoch: whole.Epoch, Place: whole.Position}
	only.GivenShare = part(only.Given, step.Position)
	only.LastEpoch = (max(step.NextPosition, 1) - 1) / n
	step.Sources = []Source{only}
	return step, nil
}

// DatasetSteps numbers the steps of one data set: its Position and Step give the place of a step,
// counted over all epochs, as they do for a mix.
func DatasetSteps(plan *order.Plan) *mix.Mix {
	return &mix.Mix{Tail: plan.Params().Tail, Epoch: max(plan.Samples(), 1)}
}

func part(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func sum(weights []uint64) (total uint64) {
	for _, w := range weights {
		total += w
	}
	return total
}
