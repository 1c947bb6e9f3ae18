package main

import (
	"context"
	"io"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// input is the stream over a data set or a mix that a command reads.
type input struct {
	*reader.Stream
	sets            []*reader.Dataset // by source
	samples         uint64            // of an epoch
	epoch, position uint64            // where it begins, in an epoch
}

// Close closes the stream and its data sets.
func (in *input) Close() {
	in.Stream.Close()
	for _, ds := range in.sets {
		if ds != nil {
			ds.Close()
		}
	}
}

// input opens a stream over a data set or a mix.
func (f *orderFlags) input(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags, workers int) (*input, error) {
	if isMix(arg) {
		return f.inputMix(ctx, stderr, arg, mixed, workers)
	}
	ds, err := f.open(ctx, arg, reader.Options{Workers: workers})
	if err != nil {
		return nil, err
	}
	f.showPlanning(ds, stderr, io.Discard)
	in := &input{sets: []*reader.Dataset{ds}, samples: ds.Selection().Len(), epoch: f.opt.Epoch}
	if cp := f.opt.Checkpoint; cp != nil {
		in.epoch, in.position = cp.Epoch, cp.Position
	}
	if in.Stream, err = f.stream(ctx, ds); err != nil {
		ds.Close()
		return nil, err
	}
	if u := in.Info().UnitOrder; u != nil {
		plan, err := u.Plan(ctx, min(in.epoch, order.MaxEpochs-1))
		if err != nil {
			in.Close()
			return nil, err
		}
		in.samples = plan.Units()
	}
	return in, nil
}

func (f *orderFlags) inputMix(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags, workers int) (*input, error) {
	o, err := f.openMix(ctx, arg, mixed, stderr)
	if err != nil {
		return nil, err
	}
	opt := f.opt
	opt.Workers = workers
	opt.Expect = append(opt.Expect, o.others(opt.Expect)...) // whatever samples have is read
	m, err := f.placeMix(o, mixed)
	in := &input{sets: o.sets, samples: o.plan.Mix().Epoch}
	if err == nil {
		in.Stream, err = reader.OpenMix(ctx, m, opt)
	}
	if err != nil {
		o.Close()
		return nil, f.explain(err)
	}
	in.epoch, in.position = m.Position/in.samples, m.Position%in.samples
	return in, nil
}
