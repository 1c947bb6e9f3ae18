package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/writer"
)

func newPack() *cobra.Command {
	var f packFlags
	cmd := &cobra.Command{
		Use:   "pack SRC… DATASET",
		Short: "Pack folders of files, tar archives, files of rows, arrays or data sets into shards",
		Long: `Pack folders of files, tar archives, files of rows (Parquet, Arrow, JSON Lines, CSV), arrays or data sets into
compressed tar shards with an index, and publish them under DATASET.

Files that share a path up to the first dot of the base name are one sample: dog/7.jpg and dog/7.json are the
sample dog/7 with the fields jpg and json. Files whose names begin with a dot are left out and counted. A prefix of an
object store such as s3://bucket/raw is a folder too.

Name archives and files of rows one by one, by globs and braces such as 'train-{000000..000099}.tar', or by a folder or
prefix; files that describe them, such as README.md, are left out and listed. Archives (.tar, also those of WebDataset) are read in the
order given; a truncated archive is an error. A zip archive is read as the folder of what it contains. In Parquet, Arrow (also Feather and save_to_disk), JSON Lines (.jsonl, .ndjson), JSON lists (.json), CSV (.csv, .tsv), TFRecord and MosaicML's MDS, the last five
also with .gz, .zst, .bz2, .xz or .lz4, each row is a sample and each column or member a field: strings and bytes unchanged, images with
their extension, lists of numbers as .npy, numbers as text, everything else as JSON. Folders key=value are columns too.

In arrays (.npy, .npz; of token ids also .bin with --raw-dtype) each row is a sample, in Megatron's .idx and .bin each document.
--pack-tokens L cuts them into samples of L tokens; with --separator ID it joins the documents of any source into such samples.
--include and --exclude choose files, whose bytes and names then decide the kind. Unknown kinds, and two kinds in a folder, are refused; --as forces a kind.

The source '-' is standard input: a tar archive, or what --stdin-format names, compressed or not. It is read as it
arrives; Parquet and zip are copied to a temporary file first. It cannot be packed with --resume or --parts.

Data sets, on disk or in a store, can be packed again: to change the size of their shards, to join several, or to take
a part of one by --share (of all keys), --include and --exclude (keys), --where (attributes), --columns (fields).
--attr tokens=len(FIELD) keeps the number of elements of an array, a field whose name ends in .npy, as an attribute of
its sample, whatever the source. The shares of a mix can count it, and inspect shows its sum.

Nothing is visible before the end: the manifest is written last, and only if nobody else published meanwhile. To
continue a pack that was killed, repeat the command with --resume; prune removes its leftovers.
The bytes written depend on the sources and on the options, never on --workers.

Many machines can pack one data set together with --parts N: each task packs the part with the number
of its Slurm or Kubernetes task, or of --part. A task may be killed and started again. At the end commit publishes all parts;
missing lists those that are missing. With --on-error skip, --max-skipped limits each part.`,
		Example: `  shardtool pack photos/ out/ --name train
  shardtool pack photos/ out/ --name train --pack-shuffle 7 --class-field cls
  shardtool pack more/ out/ --append
  shardtool pack 'wds/train-{000000..000099}.tar' out/
  shardtool pack 'data/*.parquet' out/ --key id --attr label=label --where 'width>=256'
  shardtool pack corpus.jsonl.zst out/ --key id --columns text
  zcat dump.json.gz | jq -c '.[]' | shardtool pack - out/ --stdin-format jsonl --key id
  shardtool pack 'docs/*.parquet' out/ --key id --columns input_ids --attr 'tokens=len(input_ids.npy)'
  shardtool pack 'docs/*.parquet' out/ --pack-tokens 8192 --separator 50256 --tokens-field input_ids
  shardtool pack old/ new/ --shard-size 64MiB --layer captions
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
	fl.StringVar(&f.in.ClassField, "class-field", "",
		"add a field of this name with the class of the sample: the number of its first folder, from 0 in the order of names")
	fl.StringVar(&f.classesFrom, "classes-from", "",
		"number the classes as this data set does, such as val/ as train/; others get the numbers behind them")
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
	f.outputFlags.addWriting(cmd)
	return cmd
}

// classesOf returns the names of the classes of a data set.
func classesOf(ctx context.Context, addr string) ([]string, error) {
	d, err := open.Dataset(ctx, addr, open.Options{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	classes, err := metadata.Classes(d.Info().Meta)
	if err == nil && len(classes) == 0 {
		err = usagef("--classes-from: %v has no classes: it was packed without --class-field", d.Store())
	}
	return classes, err
}

func runPack(cmd *cobra.Command, args []string, f *packFlags) error {
	if err := f.options(cmd); err != nil {
		return err
	}
	srcs, target := args[:len(args)-1], args[len(args)-1]
	store, err := current(cmd.Context(), target, "pack writes a new generation: give %s without @%s")
	if err != nil {
		return err
	}
	if f.parts.parts == 0 { // a part that is published already is no error
		if err := writer.CheckTarget(cmd.Context(), store, f.opt); err != nil {
			return cmp.Or(ingest.Inside(cmd.Context(), srcs, target), f.packError(cmd.Context(), store, err))
		}
	}
	found, err := findSources(cmd, f, srcs)
	if err != nil {
		return f.packError(cmd.Context(), store, swapped(err, srcs, target))
	}
	defer found.Close()
	if err := found.Check(cmd.Context(), target); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	if recognise.LikeFile(target) && !f.append && !f.quiet {
		fmt.Fprintf(stderr, "shardtool: %s will be a folder: a data set has several files; `shardtool cat DATASET > OUT.tar` makes one tar of it\n", shown(target))
	}
	limitMemory(f.opt.Memory, encoderMemory(&f.opt))
	switch {
	case f.classesFrom != "":
		found.Classes, err = classesOf(ctx, f.classesFrom)
	case f.append && (f.in.ClassField != "" || found.Datasets()):
		found.Classes, err = writer.Classes(ctx, store)
	}
	if err != nil {
		return err
	}
	if f.parts.parts == 0 { // other machines may be uploading parts, and their locks are not visible here
		sweep(ctx, store)
	}
	begin := time.Now()
	in, err := f.openSources(cmd, found)
	if err != nil {
		return f.packError(ctx, store, err)
	}
	defer in.Close()
	if f.classesFrom != "" {
		classes, err := metadata.Classes(in.Source.Meta())
		if err != nil {
			return err
		}
		if more := classes[min(len(found.Classes), len(classes)):]; len(more) > 0 {
			fmt.Fprintf(stderr, "shardtool: %s of classes that %s has not, such as %q, get the numbers from %d on\n", plural(len(more), "folder"),
				shown(f.classesFrom), more[0], len(found.Classes))
		}
	}
	size := in.Size
	if f.parts.parts > 0 {
		size /= int64(f.parts.parts) // approximately
	}
	bar := newProgress(stderr, "packing", bytesOf(size), f.quiet)
	f.opt.Progress = func(p writer.Progress) {
		bar.set(p.PayloadBytes, fmt.Sprintf("%s, %s", plural(p.Samples, "sample"), plural(p.Shards, "shard")))
	}
	f.opt.Faults.Skipped = skipPrinter(stderr)
	f.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	if f.parts.parts > 0 {
		err := f.packPart(cmd, store, in, bar, begin)
		f.printUndone(stderr, in)
		return err
	}
	f.opt.LeftOut = func() map[string]int64 { return leftOut(in.Names()) }
	res, err := writer.Pack(ctx, store, in.Source, f.opt)
	bar.end()
	if err != nil {
		if where := f.in.Rows.Where; errors.Is(err, writer.ErrEmpty) && len(where) > 0 {
			err = fmt.Errorf("%w; --where %q holds for no row", err, strings.Join(where, " and "))
		}
		return f.packError(ctx, store, in.Explain(err))
	}
	f.printUndone(stderr, in)
	if !found.Datasets() { // a pack of data sets has no better order
		hintPacked(cmd, store, !found.Named(), f.rows.nulls == "empty", f.quiet)
	}
	took, counts := time.Since(begin), in.Tally(0, res.Written+res.Adopted, res.Skipped, res.LeftOut)
	if len(f.in.Exclude) > 0 && counts.Left(tally.Filtered) == 0 && !f.opt.Resume {
		fmt.Fprintf(stderr, "shardtool: --exclude %s left nothing out: globs are of files, as in 'cat/**' for a folder, and of the keys of data sets\n",
			shown(strings.Join(f.in.Exclude, ",")))
	}
	return printResult(cmd, &f.outputFlags, store, res, counts, took)
}

// swapped adds to the error of a source that is not there what the last argument is, and to that of
// a single one how to pack the last argument instead, if that is a folder with files.
func swapped(err error, srcs []string, target string) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(srcs) > 1 {
		return fmt.Errorf("%w; the last argument, %s, is where the data set goes", err, target)
	}
	if _, bad := os.Stat(srcs[0]); !errors.Is(bad, fs.ErrNotExist) || strings.ContainsAny(srcs[0], "*?[{:") {
		return err
	}
	if all, bad := os.ReadDir(target); bad != nil || len(all) == 0 {
		return err
	}
	return hint.With(err, hint.Command("packs "+target+": sources come first", "pack", target, srcs[0]))
}

// leftOut returns the numbers of names that the rules left out.
func leftOut(names *tally.Tally) map[string]int64 {
	out := map[string]int64{}
	for rule, n := range names.LeftOut() {
		out[string(rule)] = n
	}
	return out
}
