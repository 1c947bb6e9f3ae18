package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
)

// served is the stream that START asks for.
type served struct {
	spec  reader.Spec
	opt   reader.StreamOptions
	plans string // folder
}

// askServed reads START.
func askServed(q *serve.StartRequest) (*served, error) {
	a := new(served)
	for _, part := range []func(*serve.StartRequest) error{a.order, a.ranks, a.units, a.read, a.faults} {
		if err := part(q); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// order reads the order that is asked for. Members that are not given keep the values of the
// checkpoint, or else the defaults.
func (a *served) order(q *serve.StartRequest) error {
	a.spec.Said = map[string]bool{}
	o, to := &q.Order, &a.spec.Order
	said(a.spec.Said, "shuffle", o.Shuffle, &to.Shuffle)
	said(a.spec.Said, "seed", o.Seed, &to.Seed)
	said(a.spec.Said, "epoch", o.Epoch, &a.spec.Epoch)
	said(a.spec.Said, "epochs", o.Epochs, &to.Epochs)
	said(a.spec.Said, "shuffle-memory", o.ShuffleMemory, &to.Memory)
	to.Host, a.opt.Tuning.Share = o.Host, o.Host
	said(a.spec.Said, "whole-shards", o.WholeShards, &to.WholeShards)
	said(a.spec.Said, "lanes", o.Lanes, &to.Lanes)
	said(a.spec.Said, "run-blocks", o.RunBlocks, &to.RunBlocks)
	said(a.spec.Said, "delay", o.Delay, &to.Delay)
	said(a.spec.Said, "head", o.Head, &to.Head)
	said(a.spec.Said, "affinity", o.Affinity, (*string)(&to.Affinity))
	said(a.spec.Said, "tail", o.Tail, (*string)(&to.Tail))
	a.opt.Shards = o.Shards
	a.spec.MicroBatches = o.MicroBatches
	if a.spec.Cost, a.spec.CostGroup = o.Cost, o.CostGroup; o.Cost != "" {
		a.plans = plansFolder("", "")
	}
	return nil
}

func said[T any](all map[string]bool, name string, from, to *T) {
	if from != nil {
		*to, all[name] = *from, true
	}
}

// ranks reads the rank and the size of a batch.
func (a *served) ranks(q *serve.StartRequest) error {
	o, to := &q.Order, &a.opt
	said(a.spec.Said, "rank", o.Rank, &to.Rank)
	said(a.spec.Said, "world-size", o.WorldSize, &to.World)
	said(a.spec.Said, "global-batch", o.GlobalBatch, &a.spec.Order.GlobalBatch)
	switch {
	case o.Rank == nil && o.WorldSize == nil:
		to.World = 1
	case o.Rank == nil || o.WorldSize == nil || to.World < 1 || to.Rank < 0 || to.Rank >= to.World:
		return usagef("rank and world_size: give both, the rank from 0 to one less than the world size, or neither to be the only one")
	}
	a.spec.Order.World = to.World
	if o.BatchSize == nil {
		return nil
	}
	g := *o.BatchSize * to.World
	if a.spec.Order.GlobalBatch, a.spec.Said["global-batch"] = g, true; g/to.World != *o.BatchSize {
		return usagef("a batch_size of %d on %d ranks: too large", *o.BatchSize, to.World)
	}
	return nil
}

// units reads whether positions hold units, and which.
func (a *served) units(q *serve.StartRequest) error {
	u := q.Units
	if u == nil {
		return nil
	}
	if u.Kind != units.Pack && u.Kind != units.Bucket {
		return usagef("units of kind %q: use pack or bucket", u.Kind)
	}
	a.spec.Units = units.Params{Kind: u.Kind, Size: u.Size, By: u.By, Long: u.Long, Window: u.Window}
	for _, name := range []string{string(u.Kind), "by", "long"} {
		a.spec.Said[name] = true
	}
	a.spec.Said["unit-window"] = u.Window != 0
	a.plans = plansFolder(u.Plans, "")
	for _, field := range u.Fields {
		a.opt.Expect = append(a.opt.Expect, field.Name)
	}
	return checkUnits(a.spec.Units)
}

// read reads how the run reads.
func (a *served) read(q *serve.StartRequest) error {
	t, o := &q.Tuning, &a.opt
	o.Tuning.Memory, o.Tuning.Workers, o.Tuning.Spare = t.Memory, t.Workers, min(max(runtime.GOMAXPROCS(0)-t.Workers,
		0), 1)
	for i := range q.Columns {
		if c := &q.Columns[i]; !c.Optional {
			o.Expect = append(o.Expect, c.Name)
		}
	}
	q.ChooseRows(o)
	tune := tuneFlags{requests: t.Requests, depth: t.Depth, auto: t.Autotune == nil || *t.Autotune}
	return tune.fill(o)
}

// faults reads how to treat damaged data.
func (a *served) faults(q *serve.StartRequest) error {
	switch f := &q.Faults; f.OnError {
	case "", "fail":
	case "skip":
		a.opt.Faults.SkipCorrupt, a.opt.Faults.MaxSkipped, a.opt.Faults.MaxSkippedShare = true, f.MaxSkipped,
			f.MaxSkippedShare
	default:
		return usagef("on_error %q: use fail or skip", f.OnError)
	}
	return nil
}

// servedFields adds what a Python program can do to an error of fields that sources lack.
func servedFields(err error, q *serve.StartRequest, mixed bool) error {
	switch {
	case !mixed || !errors.Is(err, reader.ErrFields):
		return err
	case q.Units.Packs():
		return usagef("%w: packed sequences need their fields in all sources", err)
	}
	return usagef(`%w: where samples may lack a field, declare it with a question mark, as in "bytes?"`, err)
}

// explainServed gives an error its exit code, and adds what a Python program can do.
func explainServed(err error) error {
	if wrong, ok := errors.AsType[*reader.SpecError](err); ok && wrong.File == "" && wrong.Member != "" {
		return argumentError(&hint.OptionError{Option: wrong.Member, Err: wrong.Err})
	}
	return explainRun("resume", err)
}

// planLines has the parent log a line for the first epoch that is planned, after a second and then
// every ten, if this is rank 0.
func planLines(rank int) func(source string) func(epoch, done, of uint64) {
	return func(source string) func(epoch, done, of uint64) {
		if rank > 0 {
			return nil
		}
		return firstPlan(func(of uint64) func(done uint64) {
			var mu sync.Mutex
			due := time.Now().Add(time.Second)
			return func(done uint64) {
				mu.Lock()
				defer mu.Unlock()
				if now := time.Now(); !now.Before(due) && done < of {
					due = now.Add(every)
					warnings.Warn(fmt.Sprintf("%s: %s of %s (%d%%)", planningOf(source), countText(done),
						plural(of, "sample"), 100*done/of))
				}
			}
		})
	}
}
