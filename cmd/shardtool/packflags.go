package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/writer"
)

type packFlags struct {
	opt        writer.Options
	in         ingest.Options
	rows       rowFlags
	share      shareFlags
	tokens     tokenFlags
	stdin      bool // is a source
	level      string
	layout     string
	kind       string
	onError    string
	duplicates string
	maxSkipped limitFlag
	shuffle    uint64
	overwrite  bool
	append     bool
	parts      partFlags
	outputFlags

	rule, prefix, classesFrom string
}

// addBlockSize adds --block-size, whose default is a rule.
func (f *packFlags) addBlockSize(cmd *cobra.Command) {
	sizeVar(cmd, &f.opt.BlockSize, "block-size", 0,
		"close a block at this many decoded bytes; by default also at 256KiB once it has 64 samples")
	cmd.Flags().Lookup("block-size").DefValue = "1MiB" // an explicit 1MiB has no second bound
}

// addLayout adds --layout.
func (f *packFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", "samples",
		"samples: any fields; stacked: equal arrays (.npy), as rows of one array a block; auto: stacked where possible")
	cmd.Flags().Lookup("layout").DefValue = "auto for arrays and for Parquet files with lists of one length only, else samples"
}

// addSources adds the flags that determine what becomes a sample; doctor has them too.
func (f *packFlags) addSources(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.in.Include, "include", nil,
		"take only files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringArrayVar(&f.in.Exclude, "exclude", nil,
		"leave out files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringVar(&f.in.As, "as", "",
		"what the files are, files being fields of samples: "+strings.Join(ingest.Kinds(), ", ")+
			" (default: recognised by their bytes and names)")
	fl.BoolVar(&f.in.TextLines, "text-lines", false,
		"each line of the files is a sample, with the field txt; in folders, of the .txt files, or of all files if there are none")
	fl.BoolVar(&f.in.AllSplits, "all-splits", false,
		"pack the files of several splits, such as train-* and test-*, as one data set")
	fl.StringVar(&f.rule, "sample-rule", "",
		"first-dot: files that share the name up to the first dot are one sample, also where they look like samples of their own; last-dot: up to the last dot, and keys have hyphens for dots")
	fl.StringVar(&f.prefix, "key-prefix", "",
		"source: begin keys with the name of their folder, archive or data set, such as a/000000 in a.tar, as they may be the same in several")
	titled(cmd, "Sources")
	f.rows.add(cmd, &f.in.Rows)
	f.tokens.add(cmd, &f.in.Tokens)
	fl.StringVar(&f.in.StdinFormat, "stdin-format", "",
		"standard input, the source '-': tar, jsonl, csv, parquet or zip")
	fl.Lookup("stdin-format").DefValue = "tar"
	titled(cmd, "Sources")
}

// sourceOptions converts those flags to options.
func (f *packFlags) sourceOptions(cmd *cobra.Command) error {
	err := cmp.Or(
		checkPatterns("--include ", f.in.Include), checkPatterns("--exclude ", f.in.Exclude),
		f.tokens.options(cmd, &f.in.Tokens), f.rows.options(&f.in.Rows),
	)
	f.opt.Lengths = f.rows.lengths
	f.in.FirstDot, f.in.LastDot = f.rule == "first-dot", f.rule == "last-dot"
	if err == nil && f.rule != "" && !f.in.FirstDot && !f.in.LastDot {
		err = usagef("--sample-rule %q: use first-dot or last-dot", f.rule)
	}
	f.in.KeyPrefix = f.prefix == "source" || f.prefix == "archive" // as it was called when archives alone had it
	if err == nil && f.prefix != "" && !f.in.KeyPrefix {
		err = usagef("--key-prefix %q: use source", f.prefix)
	}
	return err
}

// check rejects wrong values before anything is read, and names their flag.
func (f *packFlags) check(cmd *cobra.Command) error {
	o := &f.opt
	if err := checkRun(o.Memory, o.Workers); err != nil {
		return err
	}
	// A flag of 0 bytes is no default, as it is in the library.
	if block := cmp.Or(o.BlockSize, writer.DefaultBlockSize); o.ShardSize < block &&
		(writer.Options{BlockSize: block}).Check() == nil {
		return usagef("--shard-size %v: give at least --block-size, %v", (*sizeFlag)(&o.ShardSize), (*sizeFlag)(&block))
	}
	if err := cmp.Or(writer.CheckName(o.Name), o.Check()); err != nil {
		return optionError(err)
	}
	if cmd.Flags().Changed("max-skipped") && f.onError == "fail" && f.rows.nulls != "skip" {
		return usagef("--max-skipped: write --on-error skip too; without it the first bad sample ends the pack")
	}
	if c := f.in.ClassField; c != "" && (strings.ContainsAny(c, "/\x00") || strings.HasPrefix(c, ".")) {
		return usagef("--class-field %q: give the name of a field, such as cls", c)
	}
	if f.classesFrom != "" && (f.in.ClassField == "" || f.append) {
		return usagef("--classes-from is for --class-field; --append numbers classes as the data set does that it adds to")
	}
	return nil
}

// options converts the flags to options.
func (f *packFlags) options(cmd *cobra.Command) error {
	err := cmp.Or(f.check(cmd), f.parts.resolve(cmd, os.Getenv))
	if err != nil {
		return err
	}
	if f.opt.Level, err = codec.ParseLevel(f.level); err != nil {
		return usagef("--level %q: use fastest, default, better or best", f.level)
	}
	if f.opt.Plain, err = choose("format", f.kind, "tar.zst", "tar"); err != nil {
		if slices.Contains([]string{"jsonl", "csv", "parquet", "zip"}, f.kind) {
			return usagef("%w; --stdin-format %s says what standard input has, and files are known by what they are", err, f.kind)
		}
		return err
	}
	if f.opt.Layout, err = writer.ParseLayout(f.layout); err != nil {
		return usagef("--layout %q: use samples, stacked or auto", f.layout)
	}
	if f.opt.Faults.Skip, err = choose("on-error", f.onError, "fail", "skip"); err != nil {
		return err
	}
	if f.opt.KeepDuplicates, err = keepDuplicates(f.duplicates); err != nil {
		return err
	}
	if f.opt.Mode, err = f.mode(); err != nil {
		return err
	}
	f.opt.Faults.MaxSkipped, f.opt.Faults.MaxSkippedShare = f.maxSkipped.n, f.maxSkipped.share
	f.in.LeaveUnsafe = f.opt.Faults.Skip
	f.in.Shuffle, f.in.Seed = cmd.Flags().Changed("pack-shuffle"), f.shuffle
	f.opt.SourceOptions = map[string]string{"class_field": f.in.ClassField, "on_error": f.onError}
	if f.in.Shuffle {
		f.opt.SourceOptions["shuffle"] = fmt.Sprint(f.shuffle)
	}
	if f.in.As != "" {
		f.opt.SourceOptions["as"] = f.in.As
	}
	if f.in.TextLines {
		f.opt.SourceOptions["as"] = "text-lines"
	}
	if f.rule == "last-dot" { // the other is what is done without it
		f.opt.SourceOptions["sample_rule"] = f.rule
	}
	if f.prefix != "" {
		f.opt.SourceOptions["key_prefix"] = f.prefix
	}
	f.rows.provenance(&f.in.Rows, f.opt.SourceOptions)
	f.share.provenance(f.opt.SourceOptions)
	if f.in.Share, err = f.share.options(cmd); err != nil {
		return err
	}
	f.tokens.provenance(cmd, f.opt.SourceOptions)
	return f.sourceOptions(cmd)
}

// mode returns how to publish.
func (f *packFlags) mode() (writer.Mode, error) {
	switch {
	case f.overwrite && f.append:
		return writer.ModeCreate, usagef("--overwrite and --append exclude each other")
	case f.overwrite:
		return writer.ModeOverwrite, nil
	case f.append:
		return writer.ModeAppend, nil
	}
	return writer.ModeCreate, nil
}

// What to do after a signal.
const (
	resumed  = "nothing was published; the same command with --resume continues after the last complete shard"
	repeated = "nothing was published; run the same command again"
)

// packError returns the error of a pack with what to do next, after a signal what stop says.
func packError(ctx context.Context, err error, stop string) error {
	if stopped(ctx) {
		return stoppedError(ctx, err, stop)
	}
	// all samples were left out, or parts are missing
	if errors.Is(err, writer.ErrEmpty) || errors.Is(err, writer.ErrMissing) {
		return &exitError{exitNotFound, err}
	}
	return err
}

// encoderMemory is the memory of the workers' encoders: about 7 MiB each, 40 at the best level.
func encoderMemory(o *writer.Options) int64 {
	workers := cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	each := int64(7 << 20)
	if o.Level == codec.LevelBest {
		each = 40 << 20
	}
	return int64(workers) * each
}
