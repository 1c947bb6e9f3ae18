package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/tars"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

type indexFlags struct {
	pack packFlags // the flags that index shares with pack
	out  string
}

func newIndex() *cobra.Command {
	var f indexFlags
	cmd := &cobra.Command{
		Use:   "index SRC…",
		Short: "Index tars where they are, as a data set",
		Long: `Index plain tars that another tool such as WebDataset wrote, without copying them, so that they stream, shuffle and
resume like any data set. SRC is a folder or store of .tar files, or names some of them, by globs and braces too. The
archives are read once and not changed. The index of x.tar is written beside it as x.tar.<16 hex>.shidx, which is named
by its content and never replaced; one manifest covers all archives.

The data set is in the folder of the archives, or in --out, a folder above them. The archives must not change later:
reading detects changed bytes. Samples are formed as in pack: adjacent members that share a name up to the first dot.
Samples whose members are not adjacent, links and truncated archives are errors. Compressed archives cannot be indexed: pack them.`,
		Example: `  shardtool index /data/wds
  shardtool index '/data/wds/train-{000000..000099}.tar'
  shardtool index s3://bucket/wds && shardtool cat s3://bucket/wds --shuffle --limit 3 | tar -t`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runIndex(cmd, args, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "",
		"folder or store of the data set: a folder above the archives (default: the folder of the archives)")
	f.pack.addBlockSize(cmd)
	addDuplicates(cmd, &f.pack.duplicates)
	fl.IntVar(&f.pack.opt.Workers, "workers", 0, "read this many archives at once (0: the CPUs this process may use)")
	fl.StringVar(&f.pack.opt.TempDir, "temp-dir", "", "folder for spills of sorting (default: the system's)")
	fl.BoolVar(&f.pack.overwrite, "overwrite", false,
		"publish a new generation that replaces the current one, with new indexes of archives that changed")
	fl.BoolVar(&f.pack.append, "append", false, "publish a new generation: the current one, then these archives")
	f.pack.outputFlags.addWriting(cmd)
	return cmd
}

// options checks the flags.
func (f *indexFlags) options() error {
	o := &f.pack.opt
	if err := (writer.Options{BlockSize: o.BlockSize}).Check(); err != nil {
		return optionError(err)
	}
	o.ShardSize = max(256<<20, o.BlockSize) // shards are as large as the archives
	var err error
	if o.KeepDuplicates, err = keepDuplicates(f.pack.duplicates); err != nil {
		return err
	}
	if o.Mode, err = f.pack.mode(); err != nil {
		return err
	}
	return checkRun(minMemory, o.Workers)
}

func runIndex(cmd *cobra.Command, args []string, f *indexFlags) error {
	if err := f.options(); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	found, err := tars.Find(ctx, openFolder, args, f.out, func(target objstore.Store) error {
		return writer.CheckTarget(ctx, target, f.pack.opt)
	})
	switch {
	case errors.Is(err, tars.ErrNotPlain):
		return usagef("%w; `shardtool pack` makes shards of them", err)
	case errors.Is(err, tars.ErrAddress):
		return usage(err)
	case errors.Is(err, writer.ErrExists):
		return packError(ctx, err, repeated)
	case err != nil:
		return err
	}
	f.pack.known(stderr, "%s, %s", plural(len(found.Names), "archive"), bytesText(uint64(found.Size)))
	f.pack.knownSplits(stderr, recognise.SplitsOf(found.Names))
	sweep(ctx, found.Store)
	limitMemory(256<<20, 0)
	begin := time.Now()
	bar := newProgress(stderr, "indexing", bytesOf(found.Size), f.pack.quiet)
	f.pack.opt.Progress = func(p writer.Progress) {
		bar.set(p.StoredBytes, fmt.Sprintf("%s, %s", plural(p.Samples, "sample"), plural(p.Shards, "archive")))
	}
	f.pack.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	f.pack.opt.LeftOut = func() map[string]int64 { return leftOut(&found.Tally) }
	res, err := writer.Index(ctx, found.Store, found.Names, f.pack.opt)
	bar.end()
	if err != nil {
		return packError(ctx, err, repeated)
	}
	return printResult(cmd, &f.pack.outputFlags, found.Store, res, &found.Tally, time.Since(begin))
}

// openFolder opens the folder or store of archives, which a generation does not name.
func openFolder(ctx context.Context, addr string) (objstore.Store, error) {
	return current(ctx, addr, "%s@%s: give the folder of the archives, not a generation")
}
