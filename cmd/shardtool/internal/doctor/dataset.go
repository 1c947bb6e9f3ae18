package doctor

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

const (
	// tinyShard is the mean size below which shards are too small to stream well.
	tinyShard = 16 << 20
	// The job whose mixing is measured, and the most samples of it.
	jobBatch, jobRanks, mostMixed = 256, 8, 16 << 20
)

// Dataset examines the samples of a data set, up to Options.Limit of them, its shards, and how well
// a shuffle with default settings mixes it: for batches of 256 on 8 ranks, by place in storage.
func Dataset(ctx context.Context, d *reader.Dataset, o Options) (*Report, error) {
	e := newExamination(o)
	e.lists = d.Lists()
	if n := uint64(d.NumShards()); n > 1 && d.Info().Bytes/n < tinyShard {
		e.found(TinyShards, fmt.Sprintf("%d shards of %d bytes on average", n, d.Info().Bytes/n))
	}
	for s, err := range d.Samples(ctx, reader.Range{}) {
		if err == nil && e.done() {
			break
		}
		if err != nil {
			e.found(Corrupt, err.Error())
			return e.report(), nil
		}
		var names []string
		for i := range s.Fields {
			names = append(names, string(s.Fields[i].Name))
			e.payload(string(s.Key), string(s.Fields[i].Name), s.Fields[i].Data)
		}
		e.fields(string(s.Key), names)
	}
	m, err := e.mix(ctx, d)
	if err != nil {
		return nil, err
	}
	r := e.report()
	r.Mixing = m
	return r, nil
}

// mix measures the order of a job that shuffles with default settings. It returns nil where there
// is no such order.
func (e *examination) mix(ctx context.Context, d *reader.Dataset) (*Mixing, error) {
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	params, err := order.Choose(table, order.Choice{Shuffle: true, Epochs: 1, GlobalBatch: jobBatch, World: jobRanks})
	if err != nil { // the blocks are too large for the memory
		e.found(NoOrder, err.Error())
		return nil, nil
	}
	plan, err := order.New(table, d.Info().OrderDigest, params)
	if err != nil {
		return nil, err
	}
	labels := uniformity.Parts(plan.Stored())
	f, err := uniformity.Measure(plan, labels, jobBatch, []int{jobRanks}, uniformity.Span{Most: mostMixed, Stop: ctx.Err})
	if err != nil {
		return nil, err
	}
	if v := uniformity.Judge(max(f.VIF, f.Worlds[0].VIF), "", plan); v.Little() {
		e.found(MixesLittle, v.Warning(uniformity.Spelling{Memory: "more shuffle memory, %s",
			Shuffle: "shuffle the data when packing it"}))
	}
	return &Mixing{Params: params, GlobalBatch: jobBatch, Labels: labels.Len(), Figures: f}, nil
}
