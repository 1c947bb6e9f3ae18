package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/explain"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
)

type coverageJSON struct {
	Position uint64             `json:"position"`
	Skipped  uint64             `json:"skipped"`
	Sources  []coverageOfSource `json:"sources"`
}

type coverageOfSource struct {
	Source    string     `json:"source,omitempty"`
	Digest    string     `json:"digest"`
	Samples   uint64     `json:"samples"`
	Delivered uint64     `json:"delivered"`
	LeftOut   uint64     `json:"left_out"`
	Seen      []seenJSON `json:"seen"`
}

type seenJSON struct {
	Times   uint64 `json:"times"`
	Samples uint64 `json:"samples"`
}

// coverage prints how often a run has delivered the samples of each source.
func (f *explainFlags) coverage(cmd *cobra.Command, args []string) error {
	data := ""
	if last := args[len(args)-1]; !isCheckpoint(last) {
		data, args = last, args[:len(args)-1]
	}
	for _, file := range args {
		if !isCheckpoint(file) {
			return &exitError{exitCheckpoint, fmt.Errorf("%s is not a checkpoint: write `shardtool explain --coverage CHECKPOINT... [DATASET|MIX.yaml]`", file)}
		}
	}
	if len(args) == 0 {
		return usagef("--coverage: the samples that a run has seen follow from its checkpoints: write `shardtool explain --coverage CHECKPOINT... %s`", data)
	}
	var out coverageJSON
	var all []mix.Coverage
	var err error
	if isMixCheckpoint(args[0]) {
		all, err = out.ofMix(cmd.Context(), args, data)
	} else {
		all, err = out.ofDataset(cmd.Context(), args, data)
	}
	switch {
	case errors.Is(err, mix.ErrOrder):
		return usagef("%w: samples are missing from more than one epoch, so it matters which: write the data set or mix file after the checkpoints", err)
	case errors.Is(err, mix.ErrHistory), errors.Is(err, order.ErrMismatch):
		return &exitError{exitCheckpoint, err}
	case err != nil:
		return err
	}
	for _, c := range all {
		of := coverageOfSource{Source: c.Source, Digest: c.Digest, Samples: c.Samples, Delivered: c.Delivered, LeftOut: c.LeftOut, Seen: []seenJSON{}}
		for _, s := range c.Seen {
			of.Seen = append(of.Seen, seenJSON(s))
		}
		out.Sources = append(out.Sources, of)
	}
	if f.json {
		return printJSON(cmd, out)
	}
	return out.print(cmd.OutOrStdout())
}

// ofMix counts for a run of a mix.
func (out *coverageJSON) ofMix(ctx context.Context, files []string, data string) ([]mix.Coverage, error) {
	var run []mix.Checkpoint
	for _, file := range files {
		cp, err := readMixCheckpoint(file)
		if err != nil {
			return nil, err
		}
		run = append(run, *cp)
		if cp.Position >= out.Position {
			out.Position, out.Skipped = cp.Position, cp.Skipped
		}
	}
	if data == "" {
		return mix.Cover(run, nil)
	}
	file, err := readMix(data)
	if err != nil {
		return nil, err
	}
	return mix.Cover(run, func(s mix.Source, p order.Params) (*order.Plan, error) {
		for i := range file.Sources {
			if of := &file.Sources[i]; of.Name == s.Name {
				ds, err := openAt(ctx, of.Data, reader.Options{}, &order.Checkpoint{Tables: s.Tables})
				if err != nil {
					return nil, err
				}
				return orderOf(ctx, ds, s.Digest, p)
			}
		}
		return nil, usagef("%s does not have it, and samples are missing from more than one of its epochs: add its data set", data)
	})
}

// ofDataset counts for a run of one data set.
func (out *coverageJSON) ofDataset(ctx context.Context, files []string, data string) ([]mix.Coverage, error) {
	var run []order.Checkpoint
	for _, file := range files {
		cp, err := readCheckpoint(file)
		if err != nil {
			return nil, err
		}
		run = append(run, *cp)
		if at := cp.Epoch*cp.Sources[0].Samples + cp.Position; at >= out.Position {
			out.Position, out.Skipped = at, cp.Skipped
		}
	}
	var plan func(p order.Params) (*order.Plan, error)
	if data != "" {
		plan = func(p order.Params) (*order.Plan, error) {
			ds, err := openAt(ctx, data, reader.Options{}, &run[0])
			if err != nil {
				return nil, err
			}
			return orderOf(ctx, ds, run[0].Sources[0].Digest, p)
		}
	}
	c, err := mix.CoverDataset(run, plan)
	return []mix.Coverage{c}, err
}

// orderOf is the order of a data set, which it closes.
func orderOf(ctx context.Context, ds *reader.Dataset, digest string, p order.Params) (*order.Plan, error) {
	defer ds.Close()
	if err := explain.CheckDigest(ds, digest); err != nil {
		return nil, err
	}
	table, err := ds.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	return order.New([]order.Source{{Table: table, Digest: digest}}, p)
}

// print prints the counts for people.
func (out *coverageJSON) print(w io.Writer) error {
	fmt.Fprintf(w, "%s delivered%s\n", plural(out.Position-out.leftOut(), "sample"), skippedText(out.Skipped))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nSAMPLES\tDELIVERED\tLEFT OUT\tSEEN\tSAMPLES\t\tDIGEST\t  SOURCE")
	for i := range out.Sources {
		s := &out.Sources[i]
		for k, seen := range s.Seen {
			if k == 0 {
				digest := s.Digest[max(0, len(s.Digest)-64):]
				fmt.Fprintf(t, "%s\t%s\t%s\t%sx\t%s\t%s\t%s\t  %s\n", countText(s.Samples), countText(s.Delivered), countText(s.LeftOut), countText(seen.Times), countText(seen.Samples),
					percent(float64(seen.Samples)/float64(s.Samples)), digest[:min(len(digest), 16)], s.Source)
				continue
			}
			fmt.Fprintf(t, "\t\t\t%sx\t%s\t%s\t\t\n", countText(seen.Times), countText(seen.Samples), percent(float64(seen.Samples)/float64(s.Samples)))
		}
	}
	return t.Flush()
}

func (out *coverageJSON) leftOut() (n uint64) {
	for i := range out.Sources {
		n += out.Sources[i].LeftOut
	}
	return n
}
