package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tars"
)

type indexFlags struct {
	pack packFlags // its modes, and how it prints
	out  string
}

func newIndex() *cobra.Command {
	var f indexFlags
	cmd := &cobra.Command{
		Use:   "index SRC…",
		Short: "Make a data set of tars that stay where they are",
		Long: `Index plain tars that another tool wrote, WebDataset's say, where they lie, so that they stream, shuffle and resume like any
data set. SRC is a folder or store of .tar files, or some of them by names, globs and braces. The archives are read once
and not changed. The index of x.tar lies beside it as x.tar.<16 hex>.shidx, named by its content and never replaced, and
over all archives lies the manifest.

The data set lies in the folder of the archives, or in --out, a folder above them. The archives must stay as they are:
bytes that change later are found when they are read. Samples are as pack has them: members that share a name up to the
first dot, one behind the other. Samples torn apart, links, cut archives are errors. Compressed archives cannot be
indexed: pack them.

Exit codes:
` + exitCodes,
		Example: `  shardtool index /data/wds
  shardtool index '/data/wds/train-{000000..000099}.tar'
  shardtool index s3://bucket/wds && shardtool cat s3://bucket/wds --shuffle --limit 3 | tar -t`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runIndex(cmd, args, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "", "the folder or store of the data set: that of the archives, or above them (default: theirs)")
	f.pack.addBlockSize(cmd)
	fl.StringVar(&f.pack.duplicates, "duplicate-keys", "fail", "a key that comes again in another archive: fail or keep")
	fl.IntVar(&f.pack.opt.Workers, "workers", 0, "read so many archives at once (0: the CPUs this process may use)")
	fl.StringVar(&f.pack.opt.TempDir, "temp-dir", "", "where sorting spills to (default: the system's)")
	fl.BoolVar(&f.pack.overwrite, "overwrite", false, "publish a new generation in place of what is there, with new indexes of archives that changed")
	fl.BoolVar(&f.pack.append, "append", false, "publish a new generation: what is there, then these archives")
	fl.BoolVar(&f.pack.json, "json", false, "print the result as JSON")
	fl.BoolVar(&f.pack.quiet, "quiet", false, "no progress")
	return cmd
}

// options checks the flags.
func (f *indexFlags) options() error {
	o := &f.pack.opt
	if err := f.pack.checkBlockSize(); err != nil {
		return err
	}
	o.ShardSize = max(256<<20, o.BlockSize) // shards are as large as the archives
	switch f.pack.duplicates {
	case "fail":
	case "keep":
		o.KeepDuplicates = true
	default:
		return usagef("--duplicate-keys %q: use fail or keep", f.pack.duplicates)
	}
	switch {
	case f.pack.overwrite && f.pack.append:
		return usagef("--overwrite and --append exclude each other")
	case f.pack.overwrite:
		o.Mode = writer.Overwrite
	case f.pack.append:
		o.Mode = writer.Append
	}
	return checkRun(minMemory, o.Workers)
}

func runIndex(cmd *cobra.Command, args []string, f *indexFlags) error {
	if err := f.options(); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	found, err := tars.Find(ctx, openFolder, args, f.out)
	if errors.Is(err, tars.ErrAddress) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	f.pack.known(stderr, "%s, %s", plural(len(found.Names), "archive"), bytesText(uint64(found.Size)))
	sweep(ctx, found.Store)
	limitMemory(256<<20, 0)
	begin := time.Now()
	bar := newProgress(stderr, "indexing", found.Size, f.pack.quiet)
	f.pack.opt.Progress = func(p writer.Progress) {
		bar.set(p.StoredBytes, fmt.Sprintf("%s, %s", plural(p.Samples, "sample"), plural(p.Shards, "archive")))
	}
	f.pack.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	res, err := writer.Index(ctx, found.Store, found.Names, f.pack.opt)
	bar.end()
	if err != nil {
		if stopped(ctx) {
			return stoppedError(ctx, err, "nothing was published; the same command begins again")
		}
		return packError(ctx, err)
	}
	return printResult(cmd, f.pack.json, found.Store, res, time.Since(begin))
}

// openFolder opens the folder or store of archives, which a generation does not name.
func openFolder(ctx context.Context, addr string) (objstore.Store, error) {
	store, generation, err := dataset(ctx, addr)
	if err == nil && generation != "" {
		err = usagef("%s: give the folder of the archives, not a generation", addr)
	}
	return store, err
}
