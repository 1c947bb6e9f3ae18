package mix

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/reader/order"
)

// Coverage is how often a run has delivered the samples of one data set. Repeats that only fill a
// batch (order.TailPad) do not count; samples that could not be read do.
type Coverage struct {
	Source  string
	Digest  string // a source whose data set was replaced has a Coverage for each
	Samples uint64 // of the data set
	// Delivered is the number of samples delivered, each as often as it was, and LeftOut those of them
	// that were due but left out, by a user or by order.TailDrop.
	Delivered, LeftOut uint64
	Seen               []Seen // ascending by Times; the Samples of all add up to those above
}

// Seen is how many samples were delivered that many times.
type Seen struct{ Times, Samples uint64 }

// ErrHistory is in the errors of a run whose checkpoints leave open what it read.
var ErrHistory = errors.New("mix: the checkpoints do not tell all of the run")

// ErrOrder is in the error of a source whose order is needed and was not given.
var ErrOrder = errors.New("mix: the order of the data set is needed")

// ErrWhole is in the error of a source that is a view, or whose positions are units.
var ErrWhole = errors.New("mix: coverage is counted of whole data sets alone, not of views, packed sequences or micro-batches")

// Cover counts how often a run has delivered each sample, exactly. run is checkpoints of the run:
// the last one, and those from which it continued with other weights or sources, as far as steps
// were left out or data sets replaced before the change. They may be in any order (of two at one
// position with one From, the second counts as the later), with others of the run between them.
// Branches that the run did not follow must not be among them.
//
// order gives the order of a data set, made with params, where arithmetic is not enough: where
// samples are missing from one epoch and another epoch is unfinished, or lacks samples too. It may
// be nil; the error is then ErrOrder with a *SourceError. The cost is that of listing what is
// missing or unfinished, and some bits for each sample.
func Cover(run []Checkpoint, order func(s Source, params order.Params) (*order.Plan, error)) ([]Coverage, error) {
	if len(run) == 0 {
		return nil, fmt.Errorf("%w: give one", ErrHistory)
	}
	h := history{cps: slices.Clone(run)}
	slices.SortStableFunc(h.cps, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.From, b.From))
	})
	for i := range h.cps {
		for _, x := range h.cps[i].Sources {
			if x.View != "" || x.inUnits() { // so Place has no errors below
				return nil, &SourceError{x.Name, ErrWhole}
			}
		}
	}
	if err := h.open(); err != nil {
		return nil, err
	}
	if err := h.deliver(); err != nil {
		return nil, err
	}
	if err := h.leaveOut(); err != nil {
		return nil, err
	}
	var all []Coverage
	for i := range h.sets {
		c, err := h.sets[i].cover(order)
		if err != nil {
			return nil, fmt.Errorf("mix: %w", &SourceError{h.sets[i].source.Name, err})
		}
		all = append(all, c)
	}
	return all, nil
}

// history is the checkpoints of a run in ascending order of positions.
type history struct {
	cps    []Checkpoint
	plans  []*Plan
	counts [][]uint64 // of the sources of each checkpoint, at its position
	sets   []delivered
}

// last is the end of the run.
func (h *history) last() *Checkpoint { return &h.cps[len(h.cps)-1] }

// open makes the plans and checks that the checkpoints belong to one run.
func (h *history) open() error {
	for i := range h.cps {
		c := &h.cps[i]
		p, err := New(c.Mix)
		if err != nil {
			return err
		}
		counts, err := p.Counts(nil, c.Position)
		if err != nil {
			return err
		}
		h.plans, h.counts = append(h.plans, p), append(h.counts, counts)
		if i > 0 {
			if err := h.follows(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// follows checks that checkpoint i is of the run of the one before it.
func (h *history) follows(i int) error {
	a, b := &h.cps[i-1], &h.cps[i]
	if a.Seed != b.Seed || a.Epoch != b.Epoch || a.Tail != b.Tail || a.Shuffle != b.Shuffle {
		return fmt.Errorf("%w: the checkpoints at %d and %d have other seeds, tails or epochs: give those of one run", ErrHistory, a.Position, b.Position)
	}
	var at []uint64           // what the sources of b had given, as far as b knows
	if a.Position >= b.From { // the plan of b decided what was read at a
		at, _ = h.plans[i].Counts(nil, a.Position)
	} else {
		at = make([]uint64, len(b.Sources))
		for s := range b.Sources {
			at[s] = b.Sources[s].Base
		}
	}
	for s := range a.Sources {
		k := b.source(a.Sources[s].Name)
		if k < 0 || h.counts[i-1][s] > at[k] || a.Position >= b.From && h.counts[i-1][s] != at[k] {
			return fmt.Errorf("%w: source %q has given %d samples in the checkpoint at %d, which is not on the way to that at %d: leave out checkpoints that the run did not continue from",
				ErrHistory, a.Sources[s].Name, h.counts[i-1][s], a.Position, b.Position)
		}
	}
	return nil
}

// source is the number of a source by its name, -1 where there is none.
func (m *Mix) source(name string) int {
	return slices.IndexFunc(m.Sources, func(s Source) bool { return s.Name == name })
}

// deliver counts what each source has given, whole epochs and the part of the last one.
func (h *history) deliver() error {
	for i := range h.cps {
		for s := range h.cps[i].Sources {
			if err := h.stint(i, s); err != nil {
				return fmt.Errorf("%w: %w", ErrHistory, &SourceError{h.cps[i].Sources[s].Name, err})
			}
		}
	}
	return nil
}

// stint counts what source s of checkpoint i has given since the one before, or since its
// beginning.
func (h *history) stint(i, s int) error {
	x := &h.cps[i].Sources[s]
	count := h.counts[i][s]
	from, epoch := uint64(0), uint64(0) // where the data set's epochs began
	if i > 0 {
		if k := h.cps[i-1].source(x.Name); k >= 0 {
			was, given := &h.cps[i-1].Sources[k], h.counts[i-1][k]
			if !replaced(was, x) && x.Units > 0 {
				e, p, _ := was.Place(given)
				if e2, p2, _ := x.Place(given); e == e2 && p == p2 {
					h.give(x, given, count)
					return nil
				}
			} else if !replaced(was, x) {
				return nil
			}
			var place uint64
			if from = given; was.Units > 0 {
				if epoch, place, _ = was.Place(given); place > 0 {
					epoch++
				}
			}
		}
	}
	if x.Units > 0 {
		if e, p, _ := x.Place(from); from > count || e != epoch || p != 0 {
			return fmt.Errorf("its data set was replaced before position %d: give the checkpoint from which the run continued then", h.cps[i].Position)
		}
	}
	h.give(x, from, count)
	return nil
}

// of is what was delivered of a source's data set.
func (h *history) of(x *Source) *delivered {
	i := slices.IndexFunc(h.sets, func(d delivered) bool { return d.source.Name == x.Name && !replaced(&d.source, x) })
	if i < 0 {
		h.sets = append(h.sets, delivered{source: *x})
		i = len(h.sets) - 1
	}
	return &h.sets[i]
}

// give adds the units from ≤ j < to of a source.
func (h *history) give(x *Source, from, to uint64) { h.of(x).add(x, h.params(x), from, to, 1) }

func (h *history) params(x *Source) order.Params {
	m := Mix{Seed: h.last().Seed, Shuffle: h.last().Shuffle, Sources: []Source{*x}}
	return m.Params(0)
}

// leaveOut takes away what was due and not delivered.
func (h *history) leaveOut() error {
	holes, err := h.holes()
	if err != nil {
		return err
	}
	for _, r := range holes {
		if r.To = min(r.To, h.last().Position); r.From >= r.To {
			continue
		}
		if err := h.takeAway(r); err != nil {
			return err
		}
	}
	return nil
}

// takeAway takes away the units of a range of positions, by the plans that decided them.
func (h *history) takeAway(r Range) error {
	for i := range h.cps {
		c := &h.cps[i]
		if i > 0 && r.From < min(c.From, r.To) && r.From < c.Position { // the plan before, as far as it holds
			before := h.plans[i-1]
			if err := h.holds(i); err != nil {
				return err
			}
			part := Range{r.From, min(r.To, c.From)}
			if err := h.takeFrom(before, part); err != nil {
				return err
			}
			r.From = part.To
		}
		if i == 0 && r.From < c.From {
			return fmt.Errorf("%w: samples were left out at %d, but the first checkpoint knows its run from %d on: give one from before that", ErrHistory, r.From, c.From)
		}
		if part := (Range{r.From, min(r.To, c.Position)}); part.From < part.To {
			if err := h.takeFrom(h.plans[i], part); err != nil {
				return err
			}
			r.From = part.To
		}
	}
	return nil
}

// holds checks that the plan of the checkpoint before i decided everything up to where that of i
// begins.
func (h *history) holds(i int) error {
	b := &h.cps[i]
	counts, err := h.plans[i-1].Counts(nil, b.From)
	for s := range counts {
		k := b.source(h.cps[i-1].Sources[s].Name)
		if k < 0 || counts[s] != b.Sources[k].Base {
			err = errors.New("other counts")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: the mix changed between the checkpoints at %d and %d, and samples were left out there: give one from between",
			ErrHistory, h.cps[i-1].Position, b.Position)
	}
	return nil
}

func (h *history) takeFrom(p *Plan, r Range) error {
	from, err := p.Counts(nil, r.From)
	if err != nil {
		return err
	}
	to, err := p.Counts(nil, r.To)
	if err != nil {
		return err
	}
	for s := range from {
		x := &p.mix.Sources[s]
		h.of(x).add(x, h.params(x), from[s], to[s], -1)
	}
	return nil
}

// maxDropped is the most ends of epochs that Cover follows, times sources.
const maxDropped = 1 << 20

// holes are the ranges of positions that were not delivered, ascending and apart.
func (h *history) holes() ([]Range, error) {
	var holes []Range
	for i := range h.cps {
		for _, r := range h.cps[i].LeftOut {
			if r.To = min(r.To, h.cps[i].Position); r.From < r.To {
				holes = Join(holes, r)
			}
		}
	}
	if h.last().Tail != order.TailDrop {
		return holes, nil
	}
	if n, most := h.last().Position/h.last().Epoch, maxDropped/uint64(len(h.last().Sources)); n > most {
		return nil, fmt.Errorf("mix: %d epochs, each without its last samples: at most %d can be counted", n, most)
	}
	var dropped []Range
	for i := range h.cps {
		steps, from := h.cps[i].Steps, uint64(0)
		if i > 0 {
			from = h.cps[i-1].Position
		}
		if changed := min(steps.Position, h.cps[i].Position); changed > from { // the size before lasted until then
			var before Steps
			if i > 0 {
				before = h.cps[i-1].Steps
			}
			if before.GlobalBatch < 1 && from/h.last().Epoch < changed/h.last().Epoch {
				return nil, unknownSize(changed)
			}
			dropped = append(dropped, h.last().dropped(before, holes, from, changed)...)
			from = changed
		}
		if steps.GlobalBatch < 1 && from/h.last().Epoch < h.cps[i].Position/h.last().Epoch {
			return nil, unknownSize(h.cps[i].Position)
		}
		dropped = append(dropped, h.last().dropped(steps, holes, from, h.cps[i].Position)...)
	}
	return unite(holes, dropped), nil
}

func unknownSize(position uint64) error {
	return fmt.Errorf("%w: the batch size before position %d is not known, and tail drop depends on it: give the checkpoint from which it changed", ErrHistory, position)
}

// dropped are the ends of the epochs between two positions that batches of this size pass over. The
// first batch after a hole begins where the hole ends.
func (c *Checkpoint) dropped(steps Steps, holes []Range, from, to uint64) (ends []Range) {
	g := uint64(steps.GlobalBatch)
	for end := from - from%c.Epoch + c.Epoch; end <= to && end >= c.Epoch; end += c.Epoch {
		at := max(end-c.Epoch, steps.Position)
		for _, r := range holes {
			if r.To <= at || r.From >= end {
				continue
			}
			if r.From > at {
				at += (r.From - at) / g * g
			}
			if at < r.From { // less than a batch is left of the epoch, or the hole would be refused
				break
			}
			at = min(r.To, end)
		}
		if rest := (end - at) % g; rest > 0 {
			ends = append(ends, Range{end - rest, end})
		}
	}
	return ends
}

// CoverDataset is Cover for one data set. With order.TailDrop the batch size must never have
// changed.
func CoverDataset(run []order.Checkpoint, plan func(params order.Params) (*order.Plan, error)) (Coverage, error) {
	var cps []Checkpoint
	for _, c := range run {
		if strings.Contains(c.Sources[0].Digest, "#") || c.Units != nil {
			return Coverage{}, ErrWhole
		}
		n := c.Sources[0].Samples
		hi, position := bits.Mul64(c.Epoch, n)
		if position += c.Position; hi > 0 || position >= maxPosition {
			return Coverage{}, fmt.Errorf("mix: epoch %d of %d samples: too many to count", c.Epoch, n)
		}
		if c.Tail == order.TailDrop && len(cps) > 0 && cps[0].Steps.GlobalBatch != c.GlobalBatch {
			return Coverage{}, fmt.Errorf("%w: with tail drop they must have the same batch size: %d and %d", ErrHistory, cps[0].Steps.GlobalBatch, c.GlobalBatch)
		}
		only := Source{
			Name: "data", Digest: c.Sources[0].Digest, Units: n,
			Lanes: c.Lanes, RunBlocks: c.RunBlocks, Delay: c.Delay, Head: c.Head, Affinity: c.Affinity,
		}
		if n == 0 {
			return Coverage{Digest: only.Digest}, nil
		}
		m := Mix{Seed: c.Seed, Shuffle: c.Shuffle, Tail: c.Tail, Epoch: n, Sources: []Source{only}, Segments: []Segment{{Weights: []uint64{1}}}}
		cps = append(cps, Checkpoint{Mix: m, Position: position, Steps: Steps{GlobalBatch: c.GlobalBatch}})
	}
	var orders func(Source, order.Params) (*order.Plan, error)
	if plan != nil {
		orders = func(_ Source, params order.Params) (*order.Plan, error) {
			params.Seed = run[0].Seed
			return plan(params)
		}
	}
	all, err := Cover(cps, orders)
	if err != nil {
		return Coverage{}, err
	}
	if len(all) > 1 {
		return Coverage{}, fmt.Errorf("%w: they are of two data sets, %s and %s", ErrHistory, all[0].Digest, all[1].Digest)
	}
	all[0].Source = ""
	return all[0], nil
}

// unite joins ascending lists of ranges.
func unite(a, b []Range) (all []Range) {
	list := append(slices.Clone(a), b...)
	slices.SortFunc(list, func(x, y Range) int { return cmp.Compare(x.From, y.From) })
	for _, r := range list {
		if n := len(all); n > 0 && r.From <= all[n-1].To {
			all[n-1].To = max(all[n-1].To, r.To)
		} else {
			all = append(all, r)
		}
	}
	return all
}
