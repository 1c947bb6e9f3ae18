package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
)

// isMix reports whether an argument names a mix file.
func isMix(arg string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(arg))
}

// mixFlags are the flags that only a mix has.
type mixFlags struct {
	step   uint64
	skip   string // steps to leave out, A-B
	change bool
}

func (flags *mixFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&flags.skip, "skip-steps", "", "for a mix: leave out the steps `A-B`, both included")
	cmd.Flags().BoolVar(&flags.change, "change-mix", false, "for a mix: continue the checkpoint with other sources or weights")
	titled(cmd, "Mixes")
}

// refuse refuses the flags for one data set.
func (flags *mixFlags) refuse(changed func(flag string) bool) error {
	switch {
	case changed("skip-steps"):
		return usagef("--skip-steps is for mixes: the checkpoint of one data set cannot remember the steps left out")
	case changed("change-mix"):
		return usagef("--change-mix is for mixes")
	case changed("steps"):
		return usagef("--steps is for mixes")
	}
	return nil
}

// leaveOut adds the steps that the flags leave out of what begins at a position: what was read
// before stays read.
func (flags *mixFlags) leaveOut(ranges []mix.Range, m *mix.Mix, steps mix.Steps, position uint64) ([]mix.Range, error) {
	if flags.skip == "" {
		return ranges, nil
	}
	a, b, _ := strings.Cut(flags.skip, "-")
	first, err := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	if err := cmp.Or(err, err2); err != nil {
		return nil, usagef("--skip-steps %q: give the first and the last step to leave out, such as 40000-40100", flags.skip)
	}
	r, err := m.LeaveOut(steps, first, last)
	if err != nil {
		return nil, err
	}
	if r.To <= position {
		return nil, usagef("--skip-steps %s: these steps are over, the checkpoint is at position %d: continue from an earlier one", flags.skip, position)
	}
	return mix.Join(ranges, mix.Range{From: max(r.From, position), To: r.To}), nil
}

// notForMixes are flags that a mix file has for each source.
var notForMixes = []string{"whole-shards", "lanes", "run-blocks", "delay", "head"}

// openedMix is a mix with its data sets, by source number; nil for a source that was removed.
type openedMix struct {
	plan *mix.Plan
	sets []*reader.Dataset
	// tables are the OrderTables of sets.
	tables []order.Table
	// count is the attribute that shares count; empty: they count samples.
	count string
	more  *mix.Checkpoint
	units mixfile.UnitOrders // by source; nil where positions hold samples
}

// Close closes the data sets.
func (o *openedMix) Close() {
	o.units.Close()
	for _, ds := range o.sets {
		if ds != nil {
			ds.Close()
		}
	}
}

// openMix opens the data sets of a mix file, and makes the mix that the flags ask for.
func (f *orderFlags) openMix(ctx context.Context, name string, flags *mixFlags, stderr io.Writer) (o *openedMix, err error) {
	for _, flag := range notForMixes {
		if f.changed(flag) {
			return nil, usagef("--%s: a mix file has it for each source", flag)
		}
	}
	if f.view.given() {
		return nil, usagef("--where and --keys: a mix file has them for each source")
	}
	file, err := readMix(name)
	if err != nil {
		return nil, err
	}
	var from *mix.Checkpoint
	if len(f.ins) > 0 {
		cp, err := f.read()
		if from, err = ofMix(f.in, cp, err); err != nil {
			return nil, err
		}
	}
	o = &openedMix{more: from, count: file.Count}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	data, err := o.open(ctx, file, from)
	if err != nil {
		return o, err
	}
	if o.units, err = f.mixUnits(ctx, file, o.sets, data, from, planBars(stderr)); err != nil {
		return o, err
	}
	m, err := f.mixOf(file, data, from, flags.change, stderr)
	if err != nil {
		return o, err
	}
	if from != nil {
		o.bySource(&m, file)
	}
	o.plan, err = mix.New(m)
	return o, err
}

// mixOf makes the mix that the flags ask for, or that continues a checkpoint.
func (f *orderFlags) mixOf(file *mixfile.File, data []mixfile.Data, from *mix.Checkpoint, change bool, stderr io.Writer) (mix.Mix, error) {
	choice := f.opt.Choice()
	if from != nil {
		f.keep(&choice, from)
	}
	m, err := file.Mix(data, choice, from)
	if err != nil {
		return m, usage(err)
	}
	if from == nil {
		return m, nil
	}
	return f.resumeMix(from, m, change, stderr)
}

// open opens the data sets of the file and reads their tables. The error is that of the first
// source that has one.
func (o *openedMix) open(ctx context.Context, file *mixfile.File, from *mix.Checkpoint) ([]mixfile.Data, error) {
	failed := make([]error, len(file.Sources))
	o.sets = make([]*reader.Dataset, len(file.Sources))
	var g errgroup.Group
	g.SetLimit(64) // opening takes a few requests, one after another
	for i, s := range file.Sources {
		g.Go(func() error {
			o.sets[i], failed[i] = openSource(ctx, s, from)
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if err != nil {
			return nil, &mixfile.Error{File: file.Name, Line: file.Sources[i].Line, Member: "source " + file.Sources[i].Name, Err: err}
		}
	}
	data, err := file.Describe(ctx, o.sets)
	if err != nil {
		return nil, describeError(err)
	}
	for i := range data {
		o.tables = append(o.tables, data[i].Table)
	}
	return data, nil
}

// describeError adds the flag that helps to an error of mixfile.Describe.
func describeError(err error) error {
	if count, ok := errors.AsType[*mixfile.CountError](err); ok {
		return usagef("%w; pack has --attr %s=len(FIELD)", err, count.Attribute)
	}
	return err
}

// keep takes from the checkpoint what the flags do not give.
func (f *orderFlags) keep(c *order.Choice, from *mix.Checkpoint) {
	if !f.changed("seed") {
		c.Seed = from.Seed
	}
	if !f.changed("shuffle") {
		c.Shuffle = from.Shuffle
	}
	if !f.changed("tail") {
		c.Tail = from.Tail
	}
	if !f.changed("affinity") {
		c.Affinity = ""
	}
	if !f.changed("global-batch") && from.Steps.GlobalBatch > 0 {
		f.opt.GlobalBatch = from.Steps.GlobalBatch
	}
}

// resumeMix is the mix that continues a checkpoint: its own, or with --change-mix the one asked
// for.
func (f *orderFlags) resumeMix(from *mix.Checkpoint, asked mix.Mix, change bool, stderr io.Writer) (mix.Mix, error) {
	from.Attach(asked)
	differences, err := from.Differences(asked)
	if err != nil {
		return asked, usage(err)
	}
	if len(differences) == 0 {
		return from.Mix, nil
	}
	if !change {
		return asked, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", f.in, &mix.MismatchError{Difference: differences[0]})}
	}
	for _, d := range differences {
		fmt.Fprintf(stderr, "changed at %d: %s %s: %s -> %s", from.Position, d.Source, d.Field, d.Checkpoint, d.Given)
		if d.LeftOut > 0 {
			fmt.Fprintf(stderr, ", %s of its epoch are left out", plural(int(d.LeftOut), unitName(asked)))
		}
		fmt.Fprintln(stderr)
	}
	m, err := from.Change(asked)
	if err != nil {
		return m, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", f.in, err)}
	}
	return m, nil
}

// bySource puts the data sets, which are in the order of the file, into that of the mix.
func (o *openedMix) bySource(m *mix.Mix, file *mixfile.File) {
	var others []*reader.Dataset
	o.sets, others = mixfile.BySource(file, m, o.sets)
	for _, ds := range others {
		ds.Close()
	}
	o.tables, _ = mixfile.BySource(file, m, o.tables)
	o.bySourceUnits(m, file)
}

// openSource opens the data set of a source; with a checkpoint, the generation that it names.
func openSource(ctx context.Context, s mixfile.Source, from *mix.Checkpoint) (*reader.Dataset, error) {
	choose := viewFlags{keys: s.Keys}
	if s.Where != "" {
		choose.where = []string{s.Where}
	}
	tables := ""
	if from != nil {
		for _, was := range from.Sources {
			if was.Name == s.Name {
				tables = was.Tables
			}
		}
	}
	ds, err := openAt(ctx, s.Data, reader.Options{}, tables)
	if err != nil {
		return nil, err
	}
	if err := choose.use(ctx, ds); err != nil {
		ds.Close()
		return nil, err
	}
	return ds, nil
}

func readMix(name string) (*mixfile.File, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitNotFound, fmt.Errorf("no mix file %s", name)}
	}
	if err != nil {
		return nil, err
	}
	file, err := mixfile.Parse(name, text)
	if err != nil {
		return nil, usage(err)
	}
	return file, nil
}

// ofDataset is the checkpoint of one data set that a file has.
func ofDataset(name string, cp *reader.Checkpoint, err error) (*order.Checkpoint, error) {
	switch {
	case err != nil:
		return nil, err
	case cp.Dataset == nil:
		return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: the checkpoint has version 2, which is that of a mix of several data sets: resume with the mix", name)}
	}
	return cp.Dataset, nil
}

// ofMix is the checkpoint of a mix that a file has.
func ofMix(name string, cp *reader.Checkpoint, err error) (*mix.Checkpoint, error) {
	switch {
	case err != nil:
		return nil, err
	case cp.Mix == nil:
		return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: the checkpoint has version 1 or 3, which are those of one data set, a mix has 2: resume with the data set", name)}
	}
	return cp.Mix, nil
}

// placeMix is the mix with the place where the flags ask for the first batch.
func (f *orderFlags) placeMix(o *openedMix, flags *mixFlags) (reader.Mix, error) {
	x := o.plan.Mix()
	m := reader.Mix{Plan: o.plan, Sets: o.sets, Tables: o.tables, Units: o.units, Steps: mix.Steps{GlobalBatch: f.opt.GlobalBatch}}
	if o.more != nil {
		m.Continue(o.more)
		var err error
		if m.Steps, err = x.Resize(m.Steps, m.Position, f.opt.GlobalBatch); err != nil {
			return m, err
		}
	} else if f.opt.Epoch > 0 {
		if f.opt.Epoch > (1<<63-1)/x.Epoch {
			return m, usagef("--epoch %d: there is no such epoch", f.opt.Epoch)
		}
		m.Position = f.opt.Epoch * x.Epoch
	}
	var err error
	if m.LeftOut, err = flags.leaveOut(m.LeftOut, &x, m.Steps, m.Position); err == nil && f.changed("step") {
		m.Position, err = x.Position(m.Steps, flags.step)
	}
	return m, err
}
