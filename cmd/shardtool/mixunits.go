package main

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
)

// mixUnits has the positions of a mix hold units, if the flags or the checkpoint ask for them. The
// orders of the units are made with the mix. show makes what shows the progress of a source's
// plans.
func (f *orderFlags) mixUnits(ctx context.Context, file *mixfile.File, sets []*reader.Dataset, data []mixfile.Data, from *mix.Checkpoint, show func(what string) func(epoch, done, of uint64)) (mixfile.UnitOrders, error) {
	if f.opt.Units.Kind == "" && (from == nil || !from.InUnits()) {
		return nil, nil
	}
	made, err := file.MakeUnits(ctx, sets, data, func(s *mixfile.Source) (units.Params, reader.StreamOptions) {
		o := f.opt
		o.PlanProgress = show("planning units of " + s.Name)
		return f.unitsOfSource(s.Name, from), o
	})
	return made, f.explain(err)
}

// unitsOfSource is the parameters of a source's units: what flags give, and for the rest those of
// the checkpoint, where it has the source or another one.
func (f *orderFlags) unitsOfSource(name string, from *mix.Checkpoint) units.Params {
	asked := f.opt.Units
	if asked.Long == "" {
		asked.Long = units.LongError
	}
	if from == nil || !from.InUnits() {
		return asked
	}
	i := slices.IndexFunc(from.Sources, func(x mix.Source) bool { return x.Name == name && x.Unit.Kind != "" })
	known := i >= 0
	if !known {
		i = slices.IndexFunc(from.Sources, func(x mix.Source) bool { return x.Unit.Kind != "" })
	}
	p := from.Sources[i].Unit
	if !known {
		p.Window = 0
	}
	return f.overUnits(p)
}

// planBars shows a bar for the first epoch of a source that is planned, if it takes longer than a
// second. The others are planned while the one before is read.
func planBars(stderr io.Writer) func(what string) func(epoch, done, of uint64) {
	return func(what string) func(epoch, done, of uint64) {
		return firstPlan(func(of uint64) func(done uint64) {
			bar := newBar(stderr, io.Discard, what, samplesOf(int64(of)), false)
			return func(done uint64) {
				if bar.set(int64(done), ""); done == of {
					bar.end()
				}
			}
		})
	}
}

// firstPlan shows the progress of the first epoch that is planned. begin is called with its
// samples, and what it returns with how many are done.
func firstPlan(begin func(of uint64) func(done uint64)) func(epoch, done, of uint64) {
	var once sync.Once
	var first uint64
	var show func(done uint64)
	return func(epoch, done, of uint64) {
		once.Do(func() { first, show = epoch, begin(of) })
		if epoch == first {
			show(done)
		}
	}
}

// unitName is what positions of a mix hold.
func unitName(m mix.Mix) string {
	if m.InUnits() {
		return "unit"
	}
	return "sample"
}

// bySourceUnits is bySource for the units alone.
func (o *openedMix) bySourceUnits(m *mix.Mix, file *mixfile.File) {
	if o.units != nil {
		var gone []*unitplan.Order
		o.units, gone = mixfile.BySource(file, m, o.units)
		mixfile.UnitOrders(gone).Close()
	}
}

// orders are the orders of the sources, for Seek: nil where positions hold units.
func (o *openedMix) orders() ([]*order.Plan, error) {
	m := o.plan.Mix()
	if m.InUnits() {
		return nil, nil
	}
	return m.Orders(o.tables)
}
