package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/mix"
)

// openAtOnce is how many data sets are opened at a time: it takes a few requests, one after
// another.
const openAtOnce = 64

// Opener opens the data set of a source. tables names the generation that a checkpoint has of it;
// without one it is empty. See OpenResumed.
type Opener func(ctx context.Context, s *SourceSpec, tables string) (*Dataset, error)

// Sources are the open data sets of a Spec. Runs may share them.
type Sources struct {
	spec Spec
	sets []*Dataset
	data []sourceData // of a mix
}

// OpenSources opens the data sets of a spec that are not open. With a checkpoint it opens the
// generations that the checkpoint names. For a mix it also reads their tables. If an older program
// packed a data set, it sums an attribute over the indexes of shards. The caller must Close the
// sources.
//
// It returns the error of the first source that has one. A *CountError is in a *SpecError.
func OpenSources(ctx context.Context, s Spec, open Opener, from *Checkpoint) (*Sources, error) {
	x := &Sources{spec: s, sets: make([]*Dataset, len(s.Sources))}
	if len(s.Sources) == 0 {
		return nil, &SpecError{File: s.Name, Member: "sources", Err: errors.New("give at least one source")}
	}
	if err := cmp.Or(s.ofSources(), from.of(!s.isAlone())); err != nil {
		return nil, err
	}
	err := s.each(openAtOnce, "source ", func(i int) (err error) {
		of := &s.Sources[i]
		if x.sets[i] = of.Set; of.Set == nil {
			x.sets[i], err = open(ctx, of, from.tables(of.Name))
		}
		return err
	})
	if err == nil && !s.isAlone() {
		x.data = make([]sourceData, len(s.Sources))
		err = s.each(atOnce, "sources.", func(i int) error { return x.describe(ctx, i) })
	}
	if err == nil {
		err = CheckFields(x.sets...)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// describe reads the tables of source i.
func (x *Sources) describe(ctx context.Context, i int) (err error) {
	d, set := &x.data[i], x.sets[i]
	d.digest, d.tables, d.view = format.DigestString(set.Digest()), set.catalog.Name, set.selection.ID()
	if d.table, err = set.OrderTable(ctx); err == nil && x.spec.counts(i) {
		d.tokens, err = set.Tokens(ctx, x.spec.Count)
	}
	return err
}

// Close closes the data sets, except for those that the spec had open.
func (x *Sources) Close() error {
	var failed error
	for i, d := range x.sets {
		if d != nil && x.spec.Sources[i].Set == nil {
			failed = errors.Join(failed, d.Close())
		}
	}
	return failed
}

// All yields the data sets with their names, in the order of the spec.
func (x *Sources) All() iter.Seq2[string, *Dataset] {
	return func(yield func(string, *Dataset) bool) {
		for i, d := range x.sets {
			if !yield(x.spec.Sources[i].Name, d) {
				return
			}
		}
	}
}

// Extent returns how many samples an epoch of a mix has, and the position where its stream ends
// because every source is used up, or 2^63 if it never ends. Both are known before the orders of
// the sources are chosen. If positions hold units they are not known: the results then count
// samples, or end is 2^63. With a checkpoint the results are for its mix, or, with change, for the
// mix that continues from it.
func (x *Sources) Extent(from *Checkpoint, change bool) (epoch, end uint64, err error) {
	if x.spec.isAlone() {
		return x.sets[0].selection.Len(), 1 << 63, nil
	}
	saved, err := from.mixed()
	if err != nil {
		return 0, 0, err
	}
	s := x.spec
	s.Order.Epochs = 0
	return s.extent(x.data, saved, change)
}

// Resolve returns the run that a spec asks for, or that continues from a checkpoint. The checkpoint
// must agree with what the user said, except for the change. Resolve uses Order, Units, Epoch and
// Said of the spec, its Cost, CostGroup and MicroBatches where they are given, and takes the rest from
// OpenSources. The caller must Close the run, and keep the sources open until then. The context is
// for resolving alone.
//
// If the spec is wrong, the error is a *SpecError or wraps ErrOptions. If the checkpoint is of
// other content, or of another order, the error wraps order.ErrMismatch and names the member. If a
// sample has no length, or one that units cannot have, the error has its shard, block and key.
func (x *Sources) Resolve(ctx context.Context, asked Spec, from *Checkpoint, c Change, p Planning) (*Run, error) {
	s := x.spec
	s.Order, s.Units, s.Epoch, s.Said = asked.Order, asked.Units, asked.Epoch, asked.Said
	s.Cost, s.CostGroup = cmp.Or(asked.Cost, s.Cost), cmp.Or(asked.CostGroup, s.CostGroup)
	s.MicroBatches = cmp.Or(asked.MicroBatches, s.MicroBatches)
	if end := s.End(); c.Begin != nil && from == nil && end > 0 && *c.Begin >= end {
		return nil, &SpecError{Err: fmt.Errorf("epoch %d: the epochs asked for end before %d", *c.Begin, end)}
	}
	if s.isAlone() {
		return x.sets[0].read(ctx, s, from, c, p)
	}
	saved, err := from.mixed()
	if err = cmp.Or(s.ofSources(), err); err != nil {
		return nil, err
	}
	r := resolving{Spec: s, sets: x.sets, data: append([]sourceData(nil), x.data...), from: saved, change: c}
	return r.run(ctx, p)
}

// mixed returns a copy of a checkpoint of a mix, or nil without one.
func (c *Checkpoint) mixed() (*mix.Checkpoint, error) {
	if err := c.of(true); err != nil || c == nil {
		return nil, err
	}
	saved := *c.Mix
	return &saved, nil
}
