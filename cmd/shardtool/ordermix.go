package main

import (
	"cmp"
	"context"
	"encoding/json"
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

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/ledger"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
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
}

// refuse refuses the flags for one data set.
func (flags *mixFlags) refuse(cmd *cobra.Command) error {
	switch changed := cmd.Flags().Changed; {
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

// others are the fields of all sources that are not among those expected, as fields that samples
// may lack: no batch needs them.
func (o *openedMix) others(expected []string) (names []string) {
	for _, ds := range o.sets {
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
		if from, err = readSaved(f, readMixCheckpoint, ledger.MergeMix); err != nil {
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
	cp := &order.Checkpoint{}
	if from != nil {
		for _, was := range from.Sources {
			if was.Name == s.Name {
				cp.Tables = was.Tables
			}
		}
	}
	ds, err := openAt(ctx, s.Data, reader.Options{}, cp)
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

func readMixCheckpoint(file string) (*mix.Checkpoint, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitNotFound, fmt.Errorf("no checkpoint %s: start without --checkpoint-in, or name the right file", file)}
	}
	if err != nil {
		return nil, err
	}
	cp, err := mix.DecodeCheckpoint(text)
	if err != nil {
		return nil, &exitError{exitCheckpoint, fmt.Errorf("%s: %w", file, err)}
	}
	return &cp, nil
}

// orderMix prints the order of a mix, or one step of it.
func (f *orderFlags) orderMix(ctx context.Context, w, stderr io.Writer, name string, flags *mixFlags, keys bool) error {
	o, err := f.openMix(ctx, name, flags, stderr)
	if err != nil {
		return err
	}
	defer o.Close()
	if x := o.plan.Mix(); f.changed("step") && !x.InUnits() {
		step, err := f.stepOfMix(ctx, o, flags, f.oneRank(keys))
		return printStepLines(w, step, f.limit, err)
	}
	orders, err := o.orders()
	if err != nil {
		return usage(err)
	}
	split := order.Split{GlobalBatch: f.opt.GlobalBatch, Rank: f.opt.Rank, World: f.opt.World}
	if err := o.plan.CheckSplit(split); err != nil {
		return usage(err)
	}
	cursor, err := f.seekMix(o, orders, flags)
	if err != nil {
		return usage(err)
	}
	p := mixPrinter{mixed: o, enc: json.NewEncoder(w), keys: keys, left: f.limit, places: make([]placer, len(o.sets)), indexes: make([]keyReader, len(o.sets))}
	for s, ds := range o.sets {
		p.indexes[s] = keyReader{ds: ds, at: -1}
	}
	begin := cursor.Position()
	var refs []order.Ref
	for {
		var b order.Batch
		if refs, b, err = cursor.NextBatch(refs[:0], split); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.changed("step") && b.Position != begin {
			return nil // the step is left out
		}
		if more, err := p.print(ctx, refs, b); err != nil || !more || f.changed("step") {
			return err
		}
	}
}

// seekMix is a cursor where the flags ask for the first batch.
func (f *orderFlags) seekMix(o *openedMix, orders []*order.Plan, flags *mixFlags) (*mix.Cursor, error) {
	m, err := f.placeMix(o, flags)
	if err != nil {
		return nil, err
	}
	cursor, err := o.plan.Seek(m.Position, orders)
	if err != nil {
		return nil, err
	}
	if f.opt.Epochs > 0 {
		cursor.Until(f.opt.End())
	}
	return cursor, cursor.LeaveOut(m.LeftOut)
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

// mixPrinter prints samples of a mix, a JSON object a line.
type mixPrinter struct {
	mixed   *openedMix
	enc     *json.Encoder
	keys    bool
	left    int64 // samples to print, 0: no limit
	places  []placer
	indexes []keyReader
	unit    unitLine
}

// print prints a rank's part of a batch. more is false once the limit is reached.
func (p *mixPrinter) print(ctx context.Context, refs []order.Ref, b order.Batch) (more bool, err error) {
	m := p.mixed.plan.Mix()
	if m.InUnits() {
		return p.printUnits(ctx, &m, refs, &b)
	}
	for i, r := range refs {
		if ds := p.mixed.sets[r.Source]; !r.Padding && ds.Removed(r.Number) {
			continue
		}
		place := &p.places[r.Source]
		line := orderLine{Source: m.Sources[r.Source].Name, Epoch: uint64(r.Epoch), Position: b.Position + uint64(b.First+i), Number: r.Number, Padding: r.Padding}
		if line.Shard, line.Block, err = place.find(ctx, p.mixed.sets[r.Source], r.Number); err != nil {
			return false, err
		}
		if p.keys && !r.Padding {
			if line.Key, err = p.indexes[r.Source].key(ctx, place.shard, r.Number); err != nil {
				return false, err
			}
			line.KeyBytes = keyBytes(line.Key)
		}
		if err := p.enc.Encode(line); err != nil {
			return false, err
		}
		if p.left > 0 {
			if p.left--; p.left == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
