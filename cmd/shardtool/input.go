package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

// openedRun is a run with its data sets, which it closes.
type openedRun struct {
	Run *reader.Run
	reader.StreamInfo
	sources *reader.Sources
	count   string // the attribute that shares of a mix count; "": they count samples
}

// Close ends the run and closes its data sets.
func (o *openedRun) Close() {
	o.Run.Close()
	o.sources.Close()
}

// mix returns the plan of a mix.
func (o *openedRun) mix() *mix.Plan { return o.Run.Plan().(*mix.Plan) }

// question is what the flags and the argument of a command ask for.
type question struct {
	spec   *reader.Spec
	from   *reader.Checkpoint // nil: none
	change reader.Change
}

// ask reads the mix file and the checkpoints.
func (f *orderFlags) ask(arg string) (q question, err error) {
	if q.spec, err = f.sources(arg); err != nil {
		return q, err
	}
	q.spec.Said = f.said()
	if len(f.ins) > 0 {
		if q.from, err = f.read(); err != nil {
			return q, err
		}
		f.opt.Checkpoint = q.from
	}
	q.change, err = f.mix.asked()
	return q, err
}

// open opens the data sets.
func (f *orderFlags) open(ctx context.Context, q *question, opts reader.Options) (*reader.Sources, error) {
	o := opening(ctx, opts)
	o.Where, o.Keys = f.view.where, f.view.keys
	sources, err := reader.OpenSources(ctx, *q.spec, open.Opener(o), q.from)
	return sources, ofSource(q.spec, err, optionError)
}

// resolve decides the run over the data sets. stderr shows the progress of planning.
func (f *orderFlags) resolve(ctx context.Context, stderr io.Writer, q *question,
	sources *reader.Sources) (*reader.Run, error) {
	return sources.Resolve(ctx, f.spec(), q.from, q.change, reader.Planning{Folder: f.opt.Tuning.Plans, Log: f.opt.Log,
		Progress: planBars(stderr)})
}

// openRun opens the run over a data set or a mix that the flags ask for. It prints what changes in
// the mix and, on rank 0, what samples longer than a unit lose.
func (f *orderFlags) openRun(ctx context.Context, stderr io.Writer, arg string) (*openedRun, error) {
	q, err := f.ask(arg)
	if err != nil {
		return nil, err
	}
	sources, err := f.open(ctx, &q, reader.Options{Workers: f.opt.Tuning.Workers, Memory: f.opt.Tuning.Memory,
		Fields: f.layers.fields})
	if err != nil {
		return nil, f.explain(err)
	}
	decided, err := f.resolve(ctx, stderr, &q, sources)
	if err != nil {
		sources.Close()
		return nil, f.explain(err)
	}
	run := &openedRun{decided, decided.Info(), sources, q.spec.Count}
	f.opt.GlobalBatch = run.GlobalBatch
	for _, d := range run.Changed {
		fmt.Fprintln(stderr, changeText(q.from, &d, &run.StreamInfo))
	}
	if lost := run.Lengths.Lost(); lost != "" && f.opt.Rank == 0 {
		fmt.Fprintf(stderr, "shardtool: %s (--long)\n", lost)
	}
	return run, nil
}

// changeText describes a change of the mix.
func changeText(from *reader.Checkpoint, d *mix.Difference, i *reader.StreamInfo) string {
	text := fmt.Sprintf("changed at %d: %s %s: %s -> %s", from.Place().Position, d.Source, d.Field, d.Checkpoint,
		d.Given)
	if d.LeftOut > 0 {
		text += fmt.Sprintf(", %s of its epoch are left out", plural(int(d.LeftOut), i.Holds))
	}
	return text
}

// others returns the fields of all sources that are not in expected. They are marked as fields that
// samples may lack, because no batch needs them.
func others(sets []*reader.Dataset, expected []string) (names []string) {
	for _, ds := range sets {
		if ds == nil {
			continue
		}
		for _, f := range ds.Fields() {
			if name := f.Name + "?"; !slices.Contains(expected, f.Name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// input is the stream over a run that a command reads.
type input struct {
	Stream          *reader.Stream
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
func (f *orderFlags) input(ctx context.Context, stderr io.Writer, arg string) (*input, error) {
	run, err := f.openRun(ctx, stderr, arg)
	if err != nil {
		return nil, err
	}
	in, err := f.stream(ctx, run)
	if err != nil {
		run.Close()
	}
	return in, err
}

// stream opens the stream over a run. It reads all fields that samples have.
func (f *orderFlags) stream(ctx context.Context, run *openedRun) (in *input, err error) {
	in = &input{run: run, epoch: run.Run.Begin().Epoch, position: run.Run.Begin().Position}
	if in.samples, err = run.Run.Length(ctx, in.epoch); err != nil {
		return nil, err
	}
	if in.samples > 0 { // a mix counts on
		in.epoch, in.position = in.epoch+in.position/in.samples, in.position%in.samples
	}
	opt := f.opt
	opt.Expect = append(opt.Expect, others(run.Sources, opt.Expect)...)
	if in.Stream, err = run.Run.Stream(ctx, opt); err != nil {
		return nil, f.explain(err)
	}
	return in, nil
}

// sources returns the sources in a mix file, or the one data set that the argument names.
func (f *orderFlags) sources(arg string) (*reader.Spec, error) {
	switch {
	case !open.IsMix(arg):
		if err := f.mix.refuse(f.changed); err != nil {
			return nil, err
		}
	case f.view.given():
		return nil, usagef("--where and --keys choose samples of one data set: in a mix, write where: or keys: in each source")
	case len(f.layers.layers) > 0:
		return nil, usagef("--layer: a mix file has layers for each source")
	}
	return spec(arg, open.Options{Layers: f.layers.layers})
}

// anyEpoch lets the order run to the last possible epoch, instead of the epochs asked for. Commands
// that describe one step accept a step of any epoch.
func (f *orderFlags) anyEpoch() {
	if f.opt.Epochs > 0 {
		f.opt.Epochs = math.MaxUint64
	}
}

// stepPlace returns the place where the run begins, or with --step where that step begins. Past the
// end of the order the error is io.EOF.
func (f *orderFlags) stepPlace(ctx context.Context, run *openedRun) (reader.Place, error) {
	if !f.changed("step") {
		return run.Run.Begin(), nil
	}
	at, err := run.Run.Step(ctx, f.step, f.opt.GlobalBatch)
	return at, f.explain(err)
}
