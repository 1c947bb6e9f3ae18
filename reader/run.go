package reader

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// Run is what a job reads, and in which order. It has data sets and all decisions about batches,
// except for a place, a batch size and a rank. It is safe for concurrent use.
type Run struct {
	engine
	inputs      []*input // by number of the source
	begin       Place
	end         uint64 // epoch to end before; 0: none
	globalBatch int    // 0: not known
	changed     []mix.Difference
	costs       *costs // nil: none
	stop        []func()
	// tokens, in a mix whose shares count tokens, returns the sum of a source, by its name; else nil.
	tokens func(ctx context.Context, source string) (uint64, error)
}

// Close ends the planning of units. Streams of the run must be closed before.
func (r *Run) Close() error {
	for _, stop := range r.stop {
		stop()
	}
	return nil
}

// Info returns what the run reads, and in which order. GlobalBatch is the default batch size.
func (r *Run) Info() StreamInfo {
	i := r.info()
	i.GlobalBatch, i.Changed = r.globalBatch, r.changed
	if r.costs != nil {
		i.Cost, i.CostGroup, i.MicroBatches = r.costs.expr.Text, r.costs.group, r.costs.micro
		i.CostHash = hex.EncodeToString(r.costs.sum[:])
	}
	for _, in := range r.inputs {
		i.Sources, i.Names, i.Plans = append(i.Sources, in.Dataset), append(i.Names, in.name), append(i.Plans, in.plan)
	}
	return i
}

// Plan returns what decides the order of the run: an *order.Plan for samples of one data set, a
// *epochplan.Order for its units, and a *mix.Plan. It must not be used after Close.
func (r *Run) Plan() any { return r.arithmetic() }

// Shares returns what each source gives from a batch on until the next one begins. from and to are
// their positions over all epochs, as Number returns them.
func (r *Run) Shares(b *order.Batch, from, to uint64) ([]mix.Share, error) {
	return r.shares(b, from, to)
}

// Whole returns the same run including the steps that it leaves out. Close only one of the two.
func (r *Run) Whole() *Run {
	all := *r
	all.engine = r.whole()
	return &all
}

// Begin returns where the run begins.
func (r *Run) Begin() Place { return r.begin }

// Seek returns a cursor over one rank's part of the batches from a place on. A cursor reads
// nothing. If it has to wait for the plan of an epoch, it waits until ctx ends.
func (r *Run) Seek(ctx context.Context, at Place, s order.Split) (*Cursor, error) {
	if err := r.check(ctx, at, s, r.end == 0); err != nil {
		return nil, optionsError{err}
	}
	if r.end == 0 && allRemoved(r.inputs) {
		return nil, optionsError{errors.New("all samples were removed, and an order without an end would look for one for ever: give a number of epochs, or leave the data set out")}
	}
	c, err := r.seek(ctx, at)
	if err != nil {
		return nil, optionsError{err}
	}
	if r.end > 0 {
		c.Until(r.end)
	}
	if c, err = r.deals(c, s); err != nil {
		return nil, err
	}
	return &Cursor{ctx: ctx, batches: c, split: s, at: at.Position}, nil
}

// Length returns how many samples or units an epoch of the run has. For units of one data set, that
// takes the plan of the epoch.
func (r *Run) Length(ctx context.Context, epoch uint64) (uint64, error) { return r.length(ctx, epoch) }

// Step returns where the batch of a step begins, counted from 0 in batches of the same size; in a
// mix that continues a checkpoint, as the checkpoint numbers batches of its size. For units of one
// data set, that takes the plans of the epochs before it. Past the last possible step, the error is
// io.EOF.
func (r *Run) Step(ctx context.Context, n uint64, globalBatch int) (Place, error) {
	return r.step(ctx, n, globalBatch)
}

// Number is the inverse of Step. It returns the number of the batch that begins at a place, and the
// position of the place counted over all epochs.
func (r *Run) Number(ctx context.Context, at Place, globalBatch int) (step, position uint64, err error) {
	return r.number(ctx, at, globalBatch)
}

// Entry returns the epoch and the position of an entry of a batch: the epoch to which the entry
// belongs, or in a mix the epoch of its source. at is where the batch begins, with Position moved
// on by the place of the entry in the batch: First and more.
func (r *Run) Entry(ctx context.Context, at Place, ref *order.Ref) (Place, error) {
	return r.entry(ctx, at, ref)
}

// Cursor lists one rank's part of the batches of a run. It is for one goroutine at a time.
type Cursor struct {
	ctx     context.Context // of Seek; nil: none
	batches batches
	split   order.Split
	cuts    []uint64 // positions at which a batch ends, and after the last of them the order; nil: none
	at      uint64   // with cuts, the position of the next batch
}

// Next appends the references of this rank's part of the next batch to dst. The error is io.EOF
// after the last one, and the cause of the end of the context of Seek after that.
func (c *Cursor) Next(dst []order.Ref) ([]order.Ref, order.Batch, error) {
	if c.ctx != nil && c.ctx.Err() != nil {
		return dst, order.Batch{}, context.Cause(c.ctx)
	}
	split := c.split
	if c.cuts != nil {
		c.cuts = c.cuts[sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i] > c.at }):]
		if len(c.cuts) == 0 {
			return dst, order.Batch{}, io.EOF
		}
		split.GlobalBatch = int(min(uint64(split.GlobalBatch), c.cuts[0]-c.at))
		c.at += uint64(split.GlobalBatch)
	}
	return c.batches.NextBatch(dst, split)
}

// within returns the positions at which shards end, from where the first of some shards begins.
func (r *Run) within(ctx context.Context, shards [2]int, o *StreamOptions) (begin uint64, cuts []uint64, err error) {
	in := r.inputs[0]
	if _, ok := r.engine.(*samplesEngine); !ok || in.plan.Params().Shuffle || o.World != 1 {
		return 0, nil, errors.New("some shards of a data set are read in storage order, by one rank, without units")
	}
	// Few read a data set in this way, so one that is too large to be held has no better one.
	counts := in.table.Samples
	if in.table.Groups != nil {
		t, err := in.OrderTable(ctx)
		if err != nil {
			return 0, nil, err
		}
		counts = t.Samples
	}
	if v := in.table.View; v != nil {
		if !v.Fixed() {
			return 0, nil, errors.New("a view with weights has samples several times: give one without, where each shard is read by itself")
		}
		counts = v.Chosen(0, 0).Counts()
	}
	if shards[0] < 0 || shards[0] >= shards[1] || shards[1] > len(in.table.ShardFirst) {
		return 0, nil, fmt.Errorf("shards %d to %d of %d", shards[0], shards[1], len(in.table.ShardFirst))
	}
	at, shard := uint64(0), 0
	cuts = make([]uint64, 0, shards[1]-shards[0])
	for i, n := range counts {
		for ; shard < len(in.table.ShardFirst) && in.table.ShardFirst[shard] == i; shard++ {
			if shard == shards[0] {
				begin = at
			}
			if shard > shards[0] && shard <= shards[1] {
				cuts = append(cuts, at)
			}
		}
		at += uint64(n)
	}
	if shards[1] == len(in.table.ShardFirst) {
		cuts = append(cuts, at)
	}
	return begin, cuts, nil
}

// Checkpoint returns the checkpoint of a place. Batches have globalBatch samples or units, and
// skipped is the state of the ledger.
func (r *Run) Checkpoint(at Place, globalBatch int, skipped ledger.Mark) (Checkpoint, error) {
	return r.checkpoint(at, globalBatch, skipped)
}
