package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/codec"
	"github.com/shardtool/shardtool/objstore"
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
	json        bool
	quiet       bool

	as asFlag
}

func newPack() *cobra.Command {
	var f packFlags
	cmd := &cobra.Command{
		Use:   "pack SRC… DATASET",
		Short: "Pack folders of files, tar archives, files of rows, token arrays or data sets into shards",
		Long: `Pack folders of files, tar archives, files of rows (Parquet, Arrow, JSON Lines, CSV), arrays of token ids or data sets into
compressed tar shards with an index, and publish them under DATASET.

Files that share a path up to the first dot of the base name are one sample: dog/7.jpg and dog/7.json are the
sample dog/7 with the fields jpg and json. Files whose name begins with a dot are left out and counted. A prefix of an
object store such as s3://bucket/raw is a folder too.

Name archives and files of rows one by one, by globs and braces such as 'train-{000000..000099}.tar', or by a folder or
prefix; files that describe them, such as README.md, are left aside and listed. Archives (.tar, also those of WebDataset) are read in the
order given; a truncated archive is an error. In Parquet, Arrow (also Feather and save_to_disk), JSON Lines (.jsonl, .ndjson), CSV (.csv, .tsv) and TFRecord, the last three
also with .gz, .zst, .bz2, .xz or .lz4, each row is a sample and each column or member a field: strings and bytes unchanged, images with
their extension, lists of numbers as .npy, numbers as text, everything else as JSON.

In arrays of token ids (.npy, or .bin with --raw-dtype) each row is a sample, in Megatron's .idx and .bin each document.
--pack-tokens L cuts them into samples of L tokens; with --separator ID it joins the documents of any source into such samples.
Kinds are recognized by the bytes of files, then by names. Kinds that pack does not read, and two kinds in one folder, are
refused; --as forces a kind. --include and --exclude choose files before the kind is decided.

The source '-' is standard input: a tar archive, or rows in the --stdin-format, compressed or not. It is read as it
arrives, except Parquet, which is copied to a temporary file first. It excludes --resume and --parts.

Data sets, on disk or in a store, can be packed again: to change the size of their shards, to join several, or to take
a part of one by --share (of all keys), --include and --exclude (keys), --where (attributes), --columns (fields).
--attr tokens=len(FIELD) keeps the number of elements of an array, a field whose name ends in .npy, as an attribute of
its sample, whatever the source. The shares of a mix can count it, and inspect shows its sum.

Nothing is visible before the end: the manifest is written last, and only if nobody else published meanwhile. To
continue a pack that was killed, repeat the command with --resume; prune removes its leftovers.
The bytes written depend on the sources and on the options, never on --workers.

Many machines can pack one data set together with --parts N: each task packs one part, whose number is that of the
Slurm or Kubernetes task, or --part. A task may be killed and started again. At the end commit publishes all parts;
missing lists those that are missing. With --on-error skip, --max-skipped limits each part.`,
		Example: `  shardtool pack photos/ out/ --name train
  shardtool pack photos/ out/ --name train --pack-shuffle 7 --class-field cls
  shardtool pack s3://bucket/raw s3://bucket/shards
  shardtool pack more/ out/ --append
  shardtool pack 'wds/train-{000000..000099}.tar' out/
  shardtool pack 'data/*.parquet' out/ --key id --attr label=label --where 'width>=256'
  shardtool pack corpus.jsonl.zst out/ --key id --columns text
  zcat dump.json.gz | jq -c '.[]' | shardtool pack - out/ --stdin-format jsonl --key id
  shardtool pack 'tokens-*.npy' out/ --pack-tokens 2048
  shardtool pack 'docs/*.parquet' out/ --key id --columns input_ids --attr 'tokens=len(input_ids.npy)'
  shardtool pack 'docs/*.parquet' out/ --pack-tokens 8192 --separator 50256 --tokens-field input_ids
  shardtool pack old/ new/ --shard-size 64MiB
  shardtool pack all/ train/ --share 0%..90%
  shardtool pack photos/ out/ --parts 8 --part 3`,
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return runPack(cmd, args, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.opt.Name, "name", "data", "beginning of the shards' names")
	sizeVar(cmd, &f.opt.ShardSize, "shard-size", 256<<20, "close a shard at this many decoded bytes")
	f.addBlockSize(cmd)
	fl.Int64Var(&f.opt.SamplesPerShard, "samples-per-shard", 0, "close a shard at this many samples (0: no limit)")
	fl.StringVar(&f.level, "level", "default", "compression: fastest, default, better or best")
	fl.StringVar(&f.kind, "format", "tar.zst", "tar.zst, or tar: uncompressed, with the index in a sidecar")
	f.addLayout(cmd)
	titled(cmd, "Shards")
	f.addSources(cmd)
	f.share.add(cmd)
	fl.StringVar(&f.files.ClassField, "class-field", "", "add a field of this name with the class number: that of the sample's first folder")
	fl.Uint64Var(&f.shuffle, "pack-shuffle", 0, "pack samples in a random order, drawn with this seed")
	titled(cmd, "Sources")
	fl.StringVar(&f.onError, "on-error", "fail", "a sample that cannot be read: fail, or skip it and count it")
	fl.Var(&f.maxSkipped, "max-skipped", "maximum number of samples to skip, or a share such as 0.1% (0: no limit)")
	addDuplicates(cmd, &f.duplicates)
	titled(cmd, "Faults")
	fl.IntVar(&f.opt.Workers, "workers", 0, "compress with this many threads (0: the CPUs this process may use)")
	sizeVar(cmd, &f.opt.Memory, "memory", 256<<20, "bytes of blocks in flight")
	fl.StringVar(&f.opt.TempDir, "temp-dir", "", "folder for spills of sorting (default: the system's)")
	titled(cmd, otherFlags)
	fl.BoolVar(&f.opt.Resume, "resume", false, "continue an interrupted pack of the same sources and options")
	fl.BoolVar(&f.overwrite, "overwrite", false, "publish a new generation that replaces the current one")
	fl.BoolVar(&f.append, "append", false, "publish a new generation: the current one, then the new samples")
	f.parts.add(cmd)
	titled(cmd, "Publishing")
	fl.BoolVar(&f.json, "json", false, "print the result as JSON")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress")
	return cmd
}

// addBlockSize adds --block-size, whose default is a rule.
func (f *packFlags) addBlockSize(cmd *cobra.Command) {
	sizeVar(cmd, &f.opt.BlockSize, "block-size", 0, "close a block at this many decoded bytes; by default also at 256KiB once it has 64 samples")
	cmd.Flags().Lookup("block-size").DefValue = "1MiB" // an explicit 1MiB has no second bound
}

// addSources adds the flags that determine what becomes a sample; doctor has them too.
func (f *packFlags) addSources(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.files.Include, "include", nil, "take only files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringArrayVar(&f.files.Exclude, "exclude", nil, "leave out files, or keys of a data set, that match this glob (may be repeated)")
	fl.StringVar(&f.as.given, "as", "", "what the files are: files (fields of samples), parquet, arrow, jsonl, csv, tsv, tar or tokens (default: recognised by their bytes and names)")
	titled(cmd, "Sources")
	f.rows.add(cmd)
	f.tokens.add(cmd)
	f.stdin.add(cmd)
	titled(cmd, "Sources")
}

// sourceOptions converts those flags to options.
func (f *packFlags) sourceOptions(cmd *cobra.Command) error {
	for flag, globs := range map[string][]string{"include": f.files.Include, "exclude": f.files.Exclude} {
		for _, g := range globs {
			if !doublestar.ValidatePattern(g) {
				return usagef("--%s %q: not a glob; write one such as '*.jpg' or 'dog/**', with \\ before a [ that is meant as it stands", flag, g)
			}
		}
	}
	if err := f.tokens.options(cmd); err != nil {
		return err
	}
	if err := f.as.options(); err != nil {
		return err
	}
	err := f.rows.options()
	f.opt.Lengths = f.rows.lengths
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
	if err := f.check(cmd); err != nil {
		return err
	}
	if err := f.parts.resolve(cmd, os.Getenv); err != nil {
		return err
	}
	level, err := codec.ParseLevel(f.level)
	if err != nil {
		return usagef("--level %q: use fastest, default, better or best", f.level)
	}
	f.opt.Level = level
	var skip bool
	if f.opt.Plain, err = choose("format", f.kind, "tar.zst", "tar"); err != nil {
		return err
	}
	if err := f.chooseLayout(); err != nil {
		return err
	}
	if skip, err = choose("on-error", f.onError, "fail", "skip"); err != nil {
		return err
	}
	if f.opt.KeepDuplicates, err = keepDuplicates(f.duplicates); err != nil {
		return err
	}
	if f.opt.Mode, err = f.mode(); err != nil {
		return err
	}
	if skip {
		f.opt.Faults.Skip = true
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

func runPack(cmd *cobra.Command, args []string, f *packFlags) error {
	if err := f.options(cmd); err != nil {
		return err
	}
	srcs, target := args[:len(args)-1], args[len(args)-1]
	store, generation, err := dataset(cmd.Context(), target)
	if err != nil {
		return err
	}
	if generation != "" {
		return usagef("pack writes a new generation: give %s without @%s", strings.TrimSuffix(target, "@"+generation), generation)
	}
	found, err := findSources(cmd, f, srcs)
	if err != nil {
		return f.packError(cmd.Context(), store, err)
	}
	defer found.close()
	f.defaultLayout(cmd, found)
	if err := found.checkTarget(cmd.Context(), target); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	limitMemory(f.opt.Memory, encoderMemory(&f.opt))
	if f.append && (f.files.ClassField != "" || found.kind == &datasetKind) {
		if f.files.Classes, err = writer.Classes(ctx, store); err != nil {
			return err
		}
	}
	if f.parts.parts == 0 { // other machines may be uploading parts, and their locks are not visible here
		sweep(ctx, store)
	}
	begin := time.Now()
	src, size, err := found.open(ctx, f, stderr)
	if err != nil {
		return f.packError(ctx, store, err)
	}
	defer src.Close()
	if f.parts.parts > 0 {
		size /= int64(f.parts.parts) // approximately
	}
	bar := newProgress(stderr, "packing", size, f.quiet)
	f.opt.Progress = func(p writer.Progress) {
		bar.set(p.PayloadBytes, fmt.Sprintf("%s, %s", plural(p.Samples, "sample"), plural(p.Shards, "shard")))
	}
	f.opt.Faults.Skipped = skipPrinter(stderr)
	f.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	if f.parts.parts > 0 {
		err := f.packPart(cmd, store, found, src, bar, begin)
		f.printDropped(stderr)
		return err
	}
	res, err := writer.Pack(ctx, store, src, f.opt)
	bar.end()
	if err != nil {
		return f.packError(ctx, store, err)
	}
	f.printDropped(stderr)
	if found.kind != &datasetKind { // a pack of data sets has no better order
		hintOrder(cmd, store)
	}
	return printResult(cmd, f.json, store, res, time.Since(begin))
}

// packError returns the error of a pack with what to do next.
func packError(ctx context.Context, err error) error {
	if stopped(ctx) {
		return stoppedError(ctx, err, "nothing was published; the same command with --resume continues after the last complete shard")
	}
	if errors.Is(err, writer.ErrEmpty) { // filters or errors left out all samples
		return &exitError{exitNotFound, err}
	}
	return rowError(err)
}

// sweep removes the temporary files of killed uploads.
func sweep(ctx context.Context, store objstore.Store) {
	if sweep := objstore.TraitsOf(store).Sweep; sweep != nil {
		_, _ = sweep(ctx, time.Minute) // they are harmless where it fails
	}
}

// skipPrinter prints the first skipped samples; their number is printed at the end.
func skipPrinter(w interface{ Write([]byte) (int, error) }) func(*writer.SampleError) {
	const most = 20
	var mu sync.Mutex
	n := 0
	return func(e *writer.SampleError) {
		mu.Lock()
		defer mu.Unlock()
		switch n++; {
		case n <= most:
			fmt.Fprintf(w, "skipped: %v\n", e)
		case n == most+1:
			fmt.Fprintln(w, "skipped: more follow, which are counted only")
		}
	}
}

// printResult prints what was published.
func printResult(cmd *cobra.Command, asJSON bool, store objstore.Store, res *writer.Result, took time.Duration) error {
	if err := present(cmd, asJSON, map[string]any{
		"dataset": store.String(), "generation": res.Generation, "tables": res.Tables, "digest": format.DigestString(res.Digest),
		"samples": res.Samples, "shards": res.Shards, "blocks": res.Blocks, "bytes": res.Bytes, "payload_bytes": res.PayloadBytes,
		"written": res.Written, "adopted": res.Adopted, "skipped": res.Skipped, "skipped_list": res.SkippedList, "already": res.Already, "seconds": took.Seconds(),
	}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s in %s, %s of fields stored in %s, %s\n", store, plural(res.Samples, "sample"), plural(res.Shards, "shard"),
			bytesText(res.PayloadBytes), bytesText(res.Bytes), format.DigestString(res.Digest))
		if res.Generation > 1 {
			fmt.Fprintf(w, "generation %d, %s\n", res.Generation, res.Tables)
		}
		printResumed(w, res.Adopted, res.Written)
		fmt.Fprintf(w, "took %.1fs\n", took.Seconds())
	}); err != nil {
		return err
	}
	return skippedError(store, res.Skipped, res.SkippedList)
}

// printResumed prints how much of an interrupted pack was reused.
func printResumed(out io.Writer, adopted, written int64) {
	if adopted > 0 {
		fmt.Fprintf(out, "resumed: %s were there already, %s more read\n", plural(adopted, "sample"), countText(uint64(written)))
	}
}

// skippedError returns the error of a pack that skipped samples, or nil.
func skippedError(store objstore.Store, skipped int64, list string) error {
	if skipped == 0 {
		return nil
	}
	return &exitError{exitSkipped, fmt.Errorf("%s left out: %s lists each with the reason", plural(skipped, "sample"), objectText(store, list))}
}

// encoderMemory is the memory of the workers' encoders: about 7 MiB each, 40 at the best level.
func encoderMemory(o *writer.Options) int64 {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	each := int64(7 << 20)
	if o.Level == codec.LevelBest {
		each = 40 << 20
	}
	return int64(workers) * each
}
