package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

// findSources finds the kind of the sources, which must be the same for all, and their files.
func findSources(cmd *cobra.Command, f *packFlags, srcs []string) (*ingest.Found, error) {
	o, stderr := f.in, cmd.ErrOrStderr()
	if f.stdin = slices.Contains(srcs, stdinName); f.stdin {
		switch {
		case f.opt.Resume:
			return nil, usagef("--resume: what the killed pack read of standard input cannot be read again; save the stream to a file, or pack it anew and delete leftovers with `shardtool prune`")
		case f.parts.parts > 0:
			return nil, usagef("--parts: standard input cannot be divided between tasks; save the stream to files, or give each task data of its own with --append")
		}
	}
	o.Stdin, o.Log, o.Memory, o.Workers, o.TempDir = cmd.InOrStdin(), warnings, f.opt.Memory, f.opt.Workers,
		f.opt.TempDir
	o.Stacked, o.Lengths, o.Layers = f.opt.Layout == writer.LayoutStacked, f.rows.lengths, f.share.layers.layers
	o.Note = func(text string) { f.known(stderr, "%s", text) }
	o.Warn = func(text string) { fmt.Fprintf(stderr, "shardtool: %s\n", text) }
	o.Spell = func(option string) string { return "--" + option }
	o.Said = map[string]bool{}
	cmd.Flags().Visit(func(flag *pflag.Flag) { o.Said[flag.Name] = true })
	found, err := ingest.Find(cmd.Context(), srcs, o)
	return found, optionError(err)
}

// openSources opens what findSources has found, and chooses the layout unless --layout does.
func (f *packFlags) openSources(cmd *cobra.Command, found *ingest.Found) (*ingest.Input, error) {
	if found.Datasets() {
		limitMemory(found.MemoryUsed(), encoderMemory(&f.opt))
	}
	var listing *progress
	found.Listed = func(n int64) {
		if listing == nil {
			listing = newProgress(cmd.ErrOrStderr(), "listing", bytesOf(0), f.quiet)
		}
		listing.set(0, countText(uint64(n))+" files")
	}
	in, err := found.Open(cmd.Context())
	if listing != nil {
		listing.end()
	}
	if err != nil {
		return nil, optionError(err)
	}
	if !cmd.Flags().Changed("layout") {
		f.opt.Layout = cmp.Or(in.Layout, f.opt.Layout)
	}
	return in, nil
}

// known prints how much was found.
func (f *packFlags) known(stderr io.Writer, format string, args ...any) {
	if !f.quiet {
		fmt.Fprintf(stderr, "found "+format+"\n", args...)
	}
}

// knownSplits prints the splits that become one data set, if there are several.
func (f *packFlags) knownSplits(stderr io.Writer, splits recognise.Splits) {
	if len(splits) > 1 {
		f.known(stderr, "the splits %s, which become one data set", splits.Names())
	}
}

// stdinName is the source that stands for standard input. A folder of that name is ./-.
const stdinName = "-"

// packError is packError with advice for a pack that has nothing to continue.
func (f *packFlags) packError(ctx context.Context, store objstore.Store, err error) error {
	switch {
	case stopped(ctx) && f.stdin:
		return stoppedError(ctx, err, "nothing was published; pack the stream again from its beginning")
	case stopped(ctx) && !hasShards(ctx, store):
		return stoppedError(ctx, err, "nothing was published, and no shard was complete: there is nothing to continue")
	}
	return packError(ctx, err, resumed)
}

// hasShards reports whether a store has a shard, from which a pack that was stopped can continue.
// It says yes where the store does not answer in time.
func hasShards(ctx context.Context, store objstore.Store) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin/3)
	defer cancel()
	for info, err := range store.List(ctx, "") {
		if err != nil || strings.HasSuffix(info.Name, format.ZstdSuffix) {
			return true
		}
	}
	return false
}

// printUndone prints what a pack has not done: how many tokens were dropped at the end, and the
// columns of options that no row has: rows of JSON say what they have one by one.
func (f *packFlags) printUndone(stderr io.Writer, in *ingest.Input) {
	for _, bad := range in.Unmet() {
		fmt.Fprintf(stderr, "shardtool: %s\n", bad.Text(flagOf(bad.Option)))
	}
	if n := in.Dropped(); n > 0 && !f.quiet {
		fmt.Fprintf(stderr, "%s after the last whole sample were dropped\n", plural(n, "token"))
	}
}
