package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/serve"
	"github.com/shardtool/shardtool/internal/ledger"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
)

// serveMix is the mix of OPEN. Its streams share the data sets.
type serveMix struct {
	openedMix // data sets in the order of the file
	file      *mixfile.File
	data      []mixfile.Data
	epoch     uint64 // its length
	end       uint64 // of the stream
}

// openServeMix opens the data sets of a mix file, or of the text of one. With a checkpoint they are
// the generations that it names.
func openServeMix(ctx context.Context, q *serve.OpenRequest) (*serveMix, error) {
	file, err := serveMixFile(q)
	if err != nil {
		return nil, err
	}
	var from *mix.Checkpoint
	if q.Checkpoint != "" {
		saved, err := serveCheckpoint(q.Checkpoint)
		if from, err = ofMix("resume", saved, err); err != nil {
			return nil, err
		}
	}
	o := &serveMix{file: file}
	if o.data, err = o.open(ctx, file, from); err == nil {
		o.epoch, o.end, err = file.Extent(o.data, from, q.ChangeMix)
		err = serveMixError(err)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// serveMixFile reads the mix. What a program gives as values has no lines.
func serveMixFile(q *serve.OpenRequest) (file *mixfile.File, err error) {
	if q.Mix == "" {
		file, err = readMix(q.Address)
	} else if file, err = mixfile.Parse("mix", []byte(q.Mix)); err != nil {
		var in *mixfile.Error
		if errors.As(err, &in) {
			in.Line = 0
		}
		err = usage(err)
	}
	if err != nil {
		return nil, err
	}
	for i := range file.Sources {
		s := &file.Sources[i]
		if q.Mix != "" {
			s.Line = 0
		}
		for _, path := range []*string{&s.Data, &s.Keys} {
			if *path != "" && !strings.Contains(*path, "://") && !filepath.IsAbs(*path) {
				*path = filepath.Join(cmp.Or(q.Directory, "."), *path)
			}
		}
	}
	return file, nil
}

// mix is what INFO has of it.
func (o *serveMix) mix() *serve.Mix {
	m := &serve.Mix{Epoch: o.epoch, End: o.end}
	for i, ds := range o.sets {
		m.Sources = append(m.Sources, serve.Source{Name: o.file.Sources[i].Name, Dataset: ds})
	}
	return m
}

// stream opens the stream of START.
func (o *serveMix) stream(ctx context.Context, at *serve.Opened, q *serve.StartRequest, out *serve.Started) (*reader.Stream, error) {
	f, err := serveFlags(q)
	if err != nil {
		return nil, err
	}
	for _, flag := range notForMixes {
		if f.changed(flag) {
			return nil, usagef("%s: a mix has it for each source, as a member of order", strings.ReplaceAll(flag, "-", "_"))
		}
	}
	m, err := o.place(ctx, f, q)
	opened := false
	defer func() {
		if !opened {
			mixfile.UnitOrders(m.Units).Close()
		}
	}()
	if err != nil {
		return nil, serveMixError(err)
	}
	if f.opt.Skipped, err = ledger.Decode([]byte(q.Ledger)); err != nil {
		return nil, &exitError{exitCheckpoint, err}
	}
	f.opt.Workers = cmp.Or(f.opt.Workers, at.Workers)
	f.opt.Expect = append(f.opt.Expect, others(o.sets, f.opt.Expect)...)
	q.ChooseRows(&f.opt.Read)
	s, err := reader.OpenMix(ctx, m, f.opt) // which owns the units from here on
	if errors.Is(err, reader.ErrFields) && q.Units != nil && q.Units.Kind == units.Pack {
		err = usagef("%w: packed sequences need their fields in all sources", err)
	} else if errors.Is(err, reader.ErrFields) {
		err = usagef(`%w: where samples may lack a field, declare it with a question mark, as in "bytes?"`, err)
	}
	if err != nil {
		return nil, serveMixError(f.explain(err))
	}
	opened = true
	out.Rank, out.WorldSize, out.Workers = f.opt.Rank, f.opt.World, f.opt.Workers
	f.warnServed(ctx, s)
	limitMemory(s.Info().Memory, 0)
	return s, nil
}

// place is the mix that START asks for, and where the stream begins.
func (o *serveMix) place(ctx context.Context, f *orderFlags, q *serve.StartRequest) (m reader.Mix, err error) {
	var from *mix.Checkpoint
	if q.Checkpoint != "" {
		saved, err := serveCheckpoint(q.Checkpoint)
		if from, err = ofMix("resume", saved, err); err != nil {
			return m, err
		}
	} else if err := f.begin(q.Begin); err != nil {
		return m, err
	}
	data := slices.Clone(o.data)
	if m.Units, err = f.mixUnits(ctx, o.file, o.sets, data, from, f.planLines); err != nil {
		return m, err
	}
	x, err := f.mixOf(o.file, data, from, q.ChangeMix, os.Stderr)
	if err != nil {
		return m, err
	}
	if from != nil && q.Begin != nil {
		if err := from.Begin(*q.Begin); err != nil {
			return m, usage(err)
		}
	}
	at := &openedMix{more: from, units: m.Units}
	at.sets, _ = mixfile.BySource(o.file, &x, o.sets)
	at.tables, _ = mixfile.BySource(o.file, &x, o.tables)
	at.bySourceUnits(&x, o.file)
	if at.plan, err = mix.New(x); err != nil {
		return m, usage(err)
	}
	made := m.Units
	if m, err = f.placeMix(at, &mixFlags{}); err != nil {
		m.Units = made
		return m, usage(err)
	}
	if q.SkipSteps == nil || q.SkipSteps[1] < m.Steps.Step { // of batches of another size, and passed
		return m, nil
	}
	r, err := x.LeaveOut(m.Steps, max(q.SkipSteps[0], m.Steps.Step), q.SkipSteps[1])
	if err != nil {
		return m, usagef("skip_steps: %w", err)
	}
	m.LeftOut = mix.Join(m.LeftOut, r)
	return m, nil
}

// serveMixError adds to an error what a Python program can do, and its exit code.
func serveMixError(err error) error {
	var exit *exitError
	var differs *mix.MismatchError
	var file *mixfile.Error
	switch {
	case errors.As(err, &differs) && !differs.Frozen:
		return &exitError{exitCheckpoint, fmt.Errorf("%w (change_mix=True)", err)}
	case err == nil || errors.As(err, &exit):
		return err
	case errors.As(err, &differs):
		return &exitError{exitCheckpoint, err}
	case errors.As(err, &file):
		return usage(err)
	}
	return err
}
