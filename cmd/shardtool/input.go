package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/reader"
)

// openedRun is a run with its data sets, which it closes.
type openedRun struct {
	*reader.Run
	reader.StreamInfo
	closeSets func()
}

// Close ends the run and closes its data sets.
func (o *openedRun) Close() {
	o.Run.Close()
	o.closeSets()
}

// openRun opens the run over a data set or a mix that the flags ask for. It says what samples longer
// than a unit lose; one rank is enough.
func (f *orderFlags) openRun(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags, workers int) (*openedRun, error) {
	run, err := f.openAnyRun(ctx, stderr, arg, mixed, workers)
	if err != nil {
		return nil, err
	}
	if lost := run.Lengths.Lost(); lost != "" && f.opt.Rank == 0 {
		fmt.Fprintf(stderr, "shardtool: %s (--long)\n", lost)
	}
	return run, nil
}

func (f *orderFlags) openAnyRun(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags, workers int) (*openedRun, error) {
	if isMix(arg) {
		return f.openMixRun(ctx, stderr, arg, mixed)
	}
	if err := mixed.refuse(f.changed); err != nil {
		return nil, err
	}
	ds, err := f.open(ctx, arg, reader.Options{Workers: workers})
	if err != nil {
		return nil, err
	}
	run, err := f.run(ctx, ds, planBars(stderr))
	if err != nil {
		ds.Close()
		return nil, err
	}
	return &openedRun{run, run.Info(), func() { ds.Close() }}, nil
}

// openMixRun opens the run over a mix.
func (f *orderFlags) openMixRun(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags) (*openedRun, error) {
	o, err := f.openMix(ctx, arg, mixed, stderr)
	if err != nil {
		return nil, err
	}
	m, err := f.placeMix(o, mixed)
	if err != nil {
		o.Close()
		return nil, usage(err)
	}
	spec := f.spec()
	run, err := m.Run(ctx, spec.End())
	if err != nil {
		o.Close()
		return nil, f.explain(err)
	}
	return &openedRun{run, run.Info(), o.Close}, nil
}

// others are the fields of all sources that are not among those expected, as fields that samples
// may lack: no batch needs them.
func others(sets []*reader.Dataset, expected []string) (names []string) {
	for _, ds := range sets {
		if ds == nil {
			continue
		}
		for _, f := range ds.Info().Fields {
			if name := f.Name + "?"; !slices.Contains(expected, f.Name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// input is the stream over a run that a command reads.
type input struct {
	*reader.Stream
	run             *openedRun
	samples         uint64 // of an epoch
	epoch, position uint64 // where it begins, in an epoch
}

// Close closes the stream and its data sets.
func (in *input) Close() {
	in.Stream.Close()
	in.run.Close()
}

// input opens a stream over a data set or a mix.
func (f *orderFlags) input(ctx context.Context, stderr io.Writer, arg string, mixed *mixFlags, workers int) (in *input, err error) {
	run, err := f.openRun(ctx, stderr, arg, mixed, workers)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			run.Close()
		}
	}()
	in = &input{run: run, epoch: run.Begin().Epoch, position: run.Begin().Position}
	if in.samples, err = run.Length(ctx, in.epoch); err != nil {
		return nil, err
	}
	if in.samples > 0 { // a mix counts on
		in.epoch, in.position = in.epoch+in.position/in.samples, in.position%in.samples
	}
	opt := f.opt
	opt.Workers = workers
	opt.Expect = append(opt.Expect, others(run.Sources, opt.Expect)...) // whatever samples have is read
	if in.Stream, err = run.Stream(ctx, opt); err != nil {
		return nil, f.explain(err)
	}
	return in, nil
}
