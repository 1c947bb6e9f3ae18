package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/codec"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

type packFlags struct {
	opt    writer.Options
	files  source.FilesOptions
	rows   rowFlags
	share  shareFlags
	tokens tokenFlags
	stdin  stdinFlag
	level  string
	layout string
	// layoutGiven reports that --layout or joined documents have chosen the layout.
	layoutGiven bool
	kind        string
	onError     string
	duplicates  string
	maxSkipped  limitFlag
	shuffle     uint64
	overwrite   bool
	append      bool
	parts       partFlags
	outputFlags

	as        asFlag
	allSplits bool
	rule      string
	firstDot  bool // given as the rule
	examine   bool // for doctor, which reports what pack refuses
}

// addBlockSize adds --block-size, whose default is a rule.
func (f *packFlags) addBlockSize(cmd *cobra.Command) {
	sizeVar(cmd, &f.opt.BlockSize, "block-size", 0, "close a block at this many decoded bytes; by default also at 256KiB once it has 64 samples")
	cmd.Flags().Lookup("block-size").DefValue = "1MiB" // an explicit 1MiB has no second bound
}

// addLayout adds --layout.
func (f *packFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", "samples", "samples: any fields; stacked: equal arrays (.npy), as rows of one array a block; auto: stacked where possible")
	cmd.Flags().Lookup("layout").DefValue = "auto for arrays and for Parquet files with lists of one length only, else samples"
}

// defaultLayout stacks arrays of token ids unless --layout is given: samples are equal arrays,
// except for remainders. Joined documents have a second field, which is no array. Parquet files are
// stacked where their footers show equal arrays, see evenLayout.
func (f *packFlags) defaultLayout(cmd *cobra.Command, found *found) {
	f.layoutGiven = cmd.Flags().Changed("layout") || f.tokens.joins(found.kind)
	if !f.layoutGiven && found.kind.tokens {
		f.opt.Layout = writer.LayoutAuto
	}
}

// evenLayout stacks rows whose fields are lists of numbers of one length, unless --layout is given.
func (f *packFlags) evenLayout(even bool) {
	if even && !f.layoutGiven {
		f.opt.Layout = writer.LayoutAuto
	}
}

// addSources adds the flags that determine what becomes a sample; doctor has them too.
func (f *packFlags) addSources(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.files.Include, "include", nil, "take only files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringArrayVar(&f.files.Exclude, "exclude", nil, "leave out files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringVar(&f.as.given, "as", "", "what the files are: files (fields of samples), parquet, arrow, jsonl, json, csv, tsv, tar, tokens or arrays (default: recognised by their bytes and names)")
	fl.BoolVar(&f.as.lines, "text-lines", false, "each line of the files is a sample, with the field txt; in folders, of the .txt files, or of all files if there are none")
	fl.BoolVar(&f.allSplits, "all-splits", false, "pack the files of several splits, such as train-* and test-*, as one data set")
	fl.StringVar(&f.rule, "sample-rule", "", "first-dot: files that share the name up to the first dot are one sample, also where they look like samples of their own")
	titled(cmd, "Sources")
	f.rows.add(cmd)
	f.tokens.add(cmd)
	f.stdin.add(cmd)
	titled(cmd, "Sources")
}

// sourceOptions converts those flags to options.
func (f *packFlags) sourceOptions(cmd *cobra.Command) error {
	err := cmp.Or(
		checkPatterns("--include ", f.files.Include), checkPatterns("--exclude ", f.files.Exclude),
		f.tokens.options(cmd), f.as.options(), f.rows.options(),
	)
	f.opt.Lengths = f.rows.lengths
	if f.firstDot = f.rule == "first-dot"; err == nil && f.rule != "" && !f.firstDot {
		err = usagef("--sample-rule %q: use first-dot", f.rule)
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
	if block := cmp.Or(o.BlockSize, writer.DefaultBlockSize); o.ShardSize < block && (writer.Options{BlockSize: block}).Check() == nil {
		return usagef("--shard-size %v: give at least --block-size, %v", (*sizeFlag)(&o.ShardSize), (*sizeFlag)(&block))
	}
	if err := cmp.Or(writer.CheckName(o.Name), o.Check()); err != nil {
		return optionError(err)
	}
	if cmd.Flags().Changed("max-skipped") && f.onError == "fail" && f.rows.nulls != "skip" {
		return usagef("--max-skipped: write --on-error skip too; without it the first bad sample ends the pack")
	}
	if c := f.files.ClassField; c != "" && (strings.ContainsAny(c, "/\x00") || strings.HasPrefix(c, ".")) {
		return usagef("--class-field %q: give the name of a field, such as cls", c)
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
	f.files.Shuffle, f.files.Seed = cmd.Flags().Changed("pack-shuffle"), f.shuffle
	f.files.Memory, f.files.TempDir = f.opt.Memory/4, f.opt.TempDir
	f.opt.SourceOptions = map[string]string{"class_field": f.files.ClassField, "on_error": f.onError}
	if f.files.Shuffle {
		f.opt.SourceOptions["shuffle"] = fmt.Sprint(f.shuffle)
	}
	if f.as.given != "" && !f.as.files {
		f.opt.SourceOptions["as"] = f.as.given
	}
	if f.as.lines {
		f.opt.SourceOptions["as"] = "text-lines"
	}
	f.rows.provenance(f.opt.SourceOptions)
	f.share.provenance(f.opt.SourceOptions)
	if f.share.of, err = f.share.options(cmd); err != nil {
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
	if errors.Is(err, writer.ErrEmpty) || errors.Is(err, writer.ErrMissing) { // all samples were left out, or parts are missing
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
