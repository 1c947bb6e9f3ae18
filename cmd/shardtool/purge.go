package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
)

func newPurge() *cobra.Command {
	var opt writer.PurgeOptions
	var layers []string
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "purge DATASET",
		Short: "Rewrite shards without the bytes of removed samples",
		Long: `Rewrite the shards that hold removed samples (see ` + "`shardtool remove`" + `) without their keys, payloads, labels and numbers, publish
a generation of the new shards, and print a receipt: the keys, the shards before and after with the hashes of their
content, and the generations that still hold the bytes. Other shards are not read. Blocks and sample numbers do not change: a
purged sample stays a hole, and checkpoints stay valid. A purge cannot be undone.

Earlier generations keep the old shards until they are deleted: by --generations, which deletes all generations that hold
the bytes, or by ` + "`shardtool prune`" + `. A bucket with versioning keeps what was replaced and deleted until --versions deletes
that for good, too. Purge cannot reach copies elsewhere: caches of training machines and backups.

The layers in layers/ below DATASET and layers that --layer names are purged after it, and the receipt includes them. Run an
interrupted command again to finish it.

A purged sample keeps the names and sizes of its fields, and its integer attributes, because lengths decide how other
samples are packed into sequences; --clear-attr NAME clears one. Archives of another tool (` + "`shardtool index`" + `) are
refused, because shardtool never changes them.`,
		Example: "  shardtool purge out/ --dry-run\n  shardtool purge out/ --generations --json > receipt.json\n  shardtool purge s3://bucket/out --generations --versions",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := wholeDataset(cmd.Context(), "purge", args[0])
			if err != nil {
				return err
			}
			if opt.Memory < minMemory {
				return usagef("--memory %d: use at least 1MiB", opt.Memory)
			}
			if opt.Layers, _, err = layersOf(cmd.Context(), "purge", args[0], store, layers); err != nil {
				return err
			}
			var bar *progress
			opt.Progress = func(done, shards int) {
				if bar == nil {
					bar = newProgress(cmd.ErrOrStderr(), "purging", shardsOf(int64(shards)), out.quiet)
				}
				bar.set(int64(done), "")
			}
			r, err := writer.Purge(cmd.Context(), store, opt)
			bar.end()
			if err != nil {
				return err
			}
			if err := present(cmd, out.json, r,
				func(w io.Writer) { printAllPurged(w, r, opt.Generations) }); err != nil {
				return err
			}
			return versionsLeft(opt.Versions, r.VersionsLeft)
		},
	}
	cmd.Flags().BoolVar(&opt.Generations, "generations", false, "also delete the generations that still hold the bytes")
	cmd.Flags().BoolVar(&opt.Versions, "versions", false,
		"also delete the versions that an object store keeps of replaced and deleted objects")
	cmd.Flags().StringSliceVar(&opt.ClearAttributes, "clear-attr", nil,
		"clear this integer attribute of purged samples too")
	cmd.Flags().BoolVar(&opt.DryRun, "dry-run", false, "print what would be purged, change nothing")
	out.add(cmd, "print the receipt as JSON")
	addElsewhere(cmd, &layers)
	sizeVar(cmd, &opt.Memory, "memory", 1<<30, "largest block that is rewritten")
	return cmd
}

// deletedWord says what became of objects, or what would.
func deletedWord(dry bool) string {
	if dry {
		return "would delete"
	}
	return "deleted"
}

// printVersions prints what a store keeps, or was told to delete for good.
func printVersions(w io.Writer, deleted, left []writer.KeptVersion, dry, unknown bool) {
	for _, v := range deleted {
		fmt.Fprintf(w, "%s version %s of %s (%s)\n", deletedWord(dry), shown(v.ID), shown(v.Name),
			bytesText(uint64(v.Bytes)))
	}
	refused, size := 0, int64(0)
	for _, v := range left {
		size += v.Bytes
		if v.Error != "" {
			refused++
			fmt.Fprintf(w, "not deleted: %s: %s\n", keptText(v), shown(v.Error))
		}
	}
	switch {
	case len(left) > refused:
		fmt.Fprintf(w, "the store keeps %s of replaced and deleted objects, %s: --versions deletes them for good\n",
			plural(len(left), "version"), bytesText(uint64(size)))
	case unknown && len(left) == 0:
		fmt.Fprintln(w,
			"versions that the store keeps of deleted objects may remain, because not all are listed: where versioning or soft deletion is on, delete noncurrent versions with the store's own tools")
	}
}

// keptText names what a store kept.
func keptText(v writer.KeptVersion) string {
	if v.ID == "" {
		return shown(v.Name)
	}
	return "version " + shown(v.ID) + " of " + shown(v.Name)
}

// versionsLeft is the error of a command that was to delete objects that the store kept, or all
// versions if wanted is set.
func versionsLeft(wanted bool, left []writer.KeptVersion) error {
	if !wanted {
		left = slices.DeleteFunc(slices.Clone(left), func(v writer.KeptVersion) bool { return v.ID != "" })
	}
	if len(left) == 0 {
		return nil
	}
	what := "version"
	if left[0].ID == "" {
		what = "object"
	}
	return fmt.Errorf("the store kept %s that were to be deleted, such as %s: %s", plural(len(left), what),
		keptText(left[0]), left[0].Error)
}

// printAllPurged prints the receipt, and the receipts of the layers.
func printAllPurged(w io.Writer, r *writer.PurgeReport, generations bool) {
	printPurged(w, r, generations)
	for _, l := range r.Layers {
		if l.Receipt == nil {
			fmt.Fprintf(w, "layer %s was left alone: %s\n", shown(l.Layer), l.Error)
			continue
		}
		if l.Unpublished {
			fmt.Fprintf(w, "layer %s is not published:\n", shown(l.Layer))
			printLeftovers(w, l.Receipt)
			continue
		}
		fmt.Fprintf(w, "layer %s:\n", shown(l.Layer))
		printPurged(w, l.Receipt, generations)
	}
	printVersions(w, r.VersionsDeleted, r.VersionsLeft, r.DryRun, r.Versions)
	if len(r.Layers) > 0 {
		fmt.Fprint(w, layersNote)
	}
}

// printLeftovers prints what was found of a layer that no run has published.
func printLeftovers(w io.Writer, r *writer.PurgeReport) {
	deleted := deletedWord(r.DryRun)
	for _, name := range r.Deleted {
		fmt.Fprintf(w, "%s %s\n", deleted, name)
	}
	for _, name := range r.NotSearched {
		fmt.Fprintf(w, "not searched: %s\n", shown(name))
	}
	if n := len(r.Holding); n > 0 {
		fmt.Fprintf(w, "%s with the bytes: %s; --generations deletes them\n", plural(n, "object"),
			strings.Join(r.Holding, ", "))
	}
	if len(r.Deleted)+len(r.NotSearched)+len(r.Holding) == 0 {
		fmt.Fprintln(w, "none of its objects has the bytes of purged samples")
	}
}

// printPurged prints the receipt of one data set.
func printPurged(w io.Writer, r *writer.PurgeReport, generations bool) {
	did, deleted := "purged", deletedWord(r.DryRun)
	if r.DryRun {
		did = "would purge"
	}
	for _, s := range r.Samples {
		fmt.Fprintf(w, "%s %q (sample %d, %s)\n", did, s.Key, s.Number, shown(s.Shard))
	}
	for _, s := range r.Shards {
		fmt.Fprintf(w, "before: %s, %s, %s\n", shown(s.Before.Name), s.Before.Content, bytesText(s.Before.Bytes))
		if !r.DryRun {
			fmt.Fprintf(w, "after:  %s, %s, %s\n", shown(s.After.Name), s.After.Content, bytesText(s.After.Bytes))
		}
	}
	for _, name := range r.Deleted {
		fmt.Fprintf(w, "%s %s\n", deleted, name)
	}
	fmt.Fprintf(w, "%s %s in %s; generation %d (%s), %s\n", did, plural(len(r.Samples), "sample"),
		plural(len(r.Shards), "shard"), r.Generation, r.Tables, r.Digest)
	for _, left := range r.NamesLeft {
		fmt.Fprintf(w, "left: %s, which may name purged samples, their classes or labels\n",
			shown(strings.TrimSpace(left.Object+" "+left.Member)))
	}
	for _, name := range r.NotSearched {
		fmt.Fprintf(w, "not searched: %s\n", shown(name))
	}
	if n := len(r.Searched); n > 0 {
		fmt.Fprintf(w, "%s with other shards searched by key: %s; the same content under another key is not found there\n", plural(n, "generation"), strings.Join(r.Searched, ", "))
		if r.Unknown > 0 {
			fmt.Fprintf(w, "the keys of %s, purged before, are not known any more: these generations may have them; `shardtool prune` deletes earlier generations\n", plural(r.Unknown, "sample"))
		}
	}
	switch n := len(r.Holding); {
	case n > 0 && !generations:
		fmt.Fprintf(w, "%s with the bytes: %s; --generations deletes them\n", plural(n, "earlier generation"),
			strings.Join(r.Holding, ", "))
	case n > 0 && !r.DryRun:
		fmt.Fprintf(w, "archives of another tool have samples with these keys: %s; shardtool deletes none of them\n",
			strings.Join(r.Holding, ", "))
	case len(r.Searched) > 0 && !r.DryRun:
		fmt.Fprintln(w,
			"no generation has the shards before, or samples with the keys of purged samples that are known")
	case !r.DryRun:
		fmt.Fprintln(w, "no generation has the bytes of purged samples")
	}
}
