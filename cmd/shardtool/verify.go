package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/writer"
)

type verifyFlags struct {
	deep bool
	outputFlags
	work   int
	memory int64
	layers []string
}

func newVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify DATASET",
		Short: "Check that a data set is intact",
		Long: `Check the manifest, the tables, the size of every object and the index of every shard; with --deep, check every byte:
checksums, content against index, hashes against the manifest, the keys table. All faults are listed, not only the first.

Layers in layers/ that do not fit or lack removals are named. --layer compares the blocks and keys of a layer with the
data set; verify the layer itself by its own address.`,
		Example: "  shardtool verify out/\n  shardtool verify out/ --deep --json",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return runVerify(cmd, args[0], &f) },
	}
	cmd.Flags().BoolVar(&f.deep, "deep", false, "read and check every byte")
	cmd.Flags().StringArrayVar(&f.layers, "layer", nil,
		"compare the samples of this layer, by name or address, with the data set (may be repeated)")
	f.outputFlags.add(cmd, "print the report as JSON")
	cmd.Flags().IntVar(&f.work, "workers", 0, "check with this many threads (0: the CPUs this process may use)")
	sizeVar(cmd, &f.memory, "memory", 256<<20, "bytes of blocks in flight")
	return cmd
}

// verifyJSON is what verify prints.
type verifyJSON struct {
	// No fault.
	OK bool `json:"ok"`
	*check.Report

	Seconds float64 `json:"seconds"`
}

func runVerify(cmd *cobra.Command, arg string, f *verifyFlags) error {
	if err := checkRun(f.memory, f.work); err != nil {
		return err
	}
	store, generation, err := dataset(cmd.Context(), arg)
	if err != nil {
		return err
	}
	limitMemory(f.memory, 0)
	begin := time.Now()
	var bar *progress
	opts := check.Options{Deep: f.deep, Generation: generation, Workers: f.work, Memory: f.memory}
	if f.deep && !f.quiet {
		opts.Progress = func(p check.Progress) {
			if bar == nil {
				bar = newProgress(cmd.ErrOrStderr(), "verifying", bytesOf(int64(p.TotalBytes)), false)
			}
			bar.set(int64(p.Bytes), fmt.Sprintf("%d of %d shards, %d faults", p.Shards, p.TotalShards, p.Faults))
		}
	}
	report, err := check.Verify(cmd.Context(), store, opts)
	bar.end()
	if err == nil && generation == "" {
		err = f.compareLayers(cmd.Context(), arg, store, report)
	}
	if err != nil && (report == nil || report.OK() || cmd.Context().Err() != nil) {
		return err
	}
	ended := err
	if report.Faults == nil { // a list in JSON too
		report.Faults = []check.Fault{}
	}
	took := time.Since(begin)
	err = present(cmd, f.json, verifyJSON{report.OK(), report, took.Seconds()}, func(w io.Writer) { printReport(w, report, took) })
	return cmp.Or(err, verifyError(store, report, ended))
}

// verifyError is the error of a report with faults. ended is why the check ended early, if it did.
func verifyError(store objstore.Store, r *check.Report, ended error) error {
	unread := ""
	if r.Unread > 0 {
		unread = fmt.Sprintf("the store failed to read in %s, which says nothing about the data: see that it answers, and verify again", plural(r.Unread, "place"))
	}
	switch {
	case r.Damage() > 0:
		err := fmt.Errorf("%v has %s: restore what is named from a copy, or pack it again", store,
			plural(r.Damage(), "fault"))
		if unread != "" {
			err = fmt.Errorf("%w; besides, %s", err, unread)
		}
		return &exitError{exitCorrupt, err}
	case unread != "" && ended != nil:
		return &exitError{exitUnread, ended}
	case unread != "":
		return &exitError{exitUnread, fmt.Errorf("%v: %s", store, unread)}
	}
	return ended
}

// compareLayers adds to the report which layers do not fit, lack removals, or have other samples.
func (f *verifyFlags) compareLayers(ctx context.Context, arg string, base objstore.Store, report *check.Report) error {
	found, err := inspectLayers(ctx, "verify", arg, base, nil)
	if errors.Is(err, objstore.ErrNoList) {
		report.Notes = append(report.Notes, "layers were not looked for: "+err.Error())
	} else if err != nil {
		return err
	}
	for _, l := range found {
		switch {
		case l.Unpublished:
			report.Notes = append(report.Notes, fmt.Sprintf("layer %s: %s", l.Name, l.Error))
		case !l.Fits:
			report.Notes = append(report.Notes, fmt.Sprintf("layer %s does not fit: %s", l.Name, l.Error))
		case len(l.Clashes) > 0:
			report.Notes = append(report.Notes,
				fmt.Sprintf("layer %s cannot be read with the data set, which has %s too: make it again so that it replaces them", l.Name, strings.Join(l.Clashes, " ")))
		case l.Behind > 0:
			report.Notes = append(report.Notes,
				fmt.Sprintf("layer %s is behind by %s: repeat `shardtool remove` or `purge`", l.Name,
					plural(l.Behind, "removed sample")))
		}
	}
	for _, layer := range f.layers {
		store, err := layerStore(ctx, "verify", arg, layer)
		if err != nil {
			return err
		}
		err = writer.CheckLayer(ctx, store, base)
		switch {
		case errors.Is(err, format.ErrMismatch), errors.Is(err, format.ErrCorrupt), errors.Is(err, writer.ErrNotLayer):
			report.Faults = append(report.Faults, check.Fault{Kind: check.KindLayer, Block: -1, Offset: -1,
				Detail: err.Error()})
		case err != nil:
			return err
		}
	}
	return nil
}

func printReport(w io.Writer, r *check.Report, took time.Duration) {
	for _, f := range r.Faults {
		where := shown(f.Shard)
		if f.Block >= 0 {
			where += fmt.Sprintf(" block %d", f.Block)
		}
		if f.Offset >= 0 {
			where += fmt.Sprintf(" at %d", f.Offset)
		}
		if f.Key != "" {
			where += fmt.Sprintf(" (sample %q)", f.Key)
		}
		if where != "" {
			where += ": "
		}
		word := "FAULT"
		if f.Kind == check.KindRead && r.Damage() == 0 {
			word = "UNREAD"
		}
		fmt.Fprintf(w, "%s %s: %s%s\n", word, f.Kind, where, shown(f.Detail))
	}
	if r.Dropped > 0 {
		fmt.Fprintf(w, "and %s more\n", plural(r.Dropped, "fault"))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", shown(n))
	}
	depth := "manifest, sizes and indexes; --deep checks every byte"
	if r.Deep {
		depth = "every byte"
	}
	verdict := "whole"
	if r.Unread > 0 {
		verdict = "NOT ALL READ, " + plural(r.Unread, "place")
	}
	if r.Damage() > 0 {
		verdict = "NOT WHOLE, " + plural(r.Damage(), "fault")
	}
	rate := ""
	if r.Deep && took > 0 {
		rate = fmt.Sprintf(", %s/s", bytesText(uint64(float64(r.Bytes)/took.Seconds())))
	}
	if r.Removed > 0 {
		fmt.Fprintf(w, "%s removed from the data set, %s of them purged\n", plural(r.Removed, "sample"),
			countText(r.Purged))
	}
	fmt.Fprintf(w, "%s: %s, %s, %s, %s read in %.1fs%s (%s)\n", verdict, plural(r.Samples, "sample"),
		plural(r.Blocks, "block"),
		plural(r.Shards, "shard"), bytesText(r.Bytes), took.Seconds(), rate, depth)
}
