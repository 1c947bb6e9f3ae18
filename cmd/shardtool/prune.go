package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

func newPrune() *cobra.Command {
	var opt writer.PruneOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune DATASET",
		Short: "Delete objects that no kept generation names",
		Long: `Delete objects that no kept generation names: objects of older generations, leftovers of unfinished packs, and views
without a name. Views that have a name stay. Layers in layers/ that no run has published are leftovers too; prune a
published layer by its own address.

Only objects whose content shows that shardtool wrote them under that name are deleted; others are listed as left.

In a folder, prune deletes nothing while a pack, a commit or an index into the same folder runs: it names them and fails.
Object stores have no such lock. There --grace protects a running pack: younger leftovers stay, and so do all shards of
a pack that has a younger object. The grace period must be longer than a pack takes to upload a shard, and longer than
the parts of a pack wait for each other. A pack can resume from these objects; --grace 0s deletes them too.

A pack that loses objects to a prune fails, and names them.`,
		Example: "  shardtool prune out/ --dry-run\n  shardtool prune out/ --keep 2\n  shardtool prune out/ --grace 0s",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.Keep < 1 {
				return usagef("--keep %d: the current generation always stays; use 1 or more", opt.Keep)
			}
			if opt.Grace < 0 {
				return usagef("--grace %v: write a duration such as 24h, or 0s to spare nothing", opt.Grace)
			}
			store, err := current(cmd.Context(), args[0], "prune works on the whole data set: give it without @%[2]s")
			if err != nil {
				return err
			}
			if opt.Grace == 0 {
				opt.Grace = -1 // no grace; for the library 0 is the default
			}
			res, err := writer.Prune(cmd.Context(), store, opt)
			if err == nil && len(res.Kept) > 0 {
				err = pruneLayers(cmd.Context(), args[0], store, opt, res)
			}
			if err != nil {
				return err
			}
			if len(res.Kept)+len(res.Objects)+len(res.Left)+len(res.Young)+len(res.VersionsDeleted)+len(res.VersionsLeft) == 0 {
				return &exitError{exitNotFound,
					fmt.Errorf("no data set in %v, and no leftovers of a pack: check the path", store)}
			}
			if !opt.DryRun {
				sweep(cmd.Context(), store)
			}
			if err := present(cmd, asJSON, byName{newPruneJSON(res, &opt)},
				func(w io.Writer) { printPruned(w, res, &opt) }); err != nil {
				return err
			}
			return versionsLeft(opt.Versions, res.VersionsLeft)
		},
	}
	cmd.Flags().IntVar(&opt.Keep, "keep", 1, "generations to keep, the current one included")
	cmd.Flags().BoolVar(&opt.DryRun, "dry-run", false, "list what would be deleted, delete nothing")
	cmd.Flags().BoolVar(&opt.Versions, "versions", false,
		"also delete the versions that an object store keeps of replaced and deleted objects")
	cmd.Flags().DurationVar(&opt.Grace, "grace", writer.DefaultGrace,
		"spare leftovers younger than this, and the packs they belong to (0s: spare nothing)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// pruneLayers prunes the layers in the folder of a data set that no run has published, and adds
// what it did to the result. A layer that a program writes now is left alone.
func pruneLayers(ctx context.Context, dataset string, base objstore.Store, opt writer.PruneOptions,
	res *writer.PruneResult) error {
	found, err := inspectLayers(ctx, "prune", dataset, base, nil)
	opt.Versions = false // those below the data set are done
	for _, l := range found {
		if !l.Unpublished {
			continue
		}
		store, err := layerStore(ctx, "prune", dataset, l.Name)
		if err != nil {
			return err
		}
		r, err := writer.Prune(ctx, store, opt)
		if errors.Is(err, objstore.ErrBusy) {
			continue
		}
		if err != nil {
			return err
		}
		in := func(all []objstore.Info) []objstore.Info {
			for i := range all {
				all[i].Name = names.Layer(l.Name) + "/" + all[i].Name
			}
			return all
		}
		res.Objects, res.Young, res.Left = append(res.Objects, in(r.Objects)...), append(res.Young, in(r.Young)...),
			append(res.Left, in(r.Left)...)
		res.Bytes += r.Bytes
		for _, v := range r.VersionsLeft {
			if v.ID == "" { // refused; the versions are those below the data set
				v.Name = names.Layer(l.Name) + "/" + v.Name
				res.VersionsLeft = append([]writer.KeptVersion{v}, res.VersionsLeft...)
			}
		}
	}
	return err
}

func sumSizes(objects []objstore.Info) (n uint64) {
	for i := range objects {
		n += uint64(objects[i].Size)
	}
	return n
}

func printPruned(w io.Writer, res *writer.PruneResult, opt *writer.PruneOptions) {
	verb := deletedWord(opt.DryRun)
	for _, o := range res.Objects {
		fmt.Fprintf(w, "%s %s (%s)\n", verb, o.Name, bytesText(uint64(o.Size)))
	}
	for _, o := range res.Left {
		fmt.Fprintf(w, "left %s: its content does not show that shardtool wrote it under this name\n", o.Name)
	}
	if n := len(res.Young); n > 0 {
		fmt.Fprintf(w,
			"spared %s, %s: they, or the pack they belong to, are younger than %v, so that it can be resumed or is still running; --grace 0s deletes them\n",
			plural(n, "object"), bytesText(sumSizes(res.Young)), opt.Grace)
	}
	printVersions(w, res.VersionsDeleted, res.VersionsLeft, opt.DryRun, res.Versions)
	fmt.Fprintf(w, "%s %s, %s; kept %s\n", verb, plural(len(res.Objects), "object"), bytesText(uint64(res.Bytes)),
		plural(len(res.Kept), "generation"))
}

// pruneJSON is what prune prints.
type pruneJSON struct {
	// Objects deleted, or with `--dry-run` to be deleted.
	Deleted []string `json:"deleted"`
	Bytes   int64    `json:"bytes"`
	DryRun  bool     `json:"dry_run"`
	// Objects named like shards that shardtool did not write.
	Left []string `json:"left"`
	// Tables of the generations kept.
	Kept []string `json:"kept"`
	// Objects younger than `--grace`.
	Spared      []string `json:"spared"`
	SparedBytes uint64   `json:"spared_bytes"`
	Grace       float64  `json:"grace_seconds"`

	Versions bool `json:"versions_may_remain"`
	// Those that `--versions` deleted for good, or would; those that the store keeps.
	VersionsDeleted []writer.KeptVersion `json:"versions_deleted,omitzero"`
	VersionsLeft    []writer.KeptVersion `json:"versions_left,omitzero"`
}

func newPruneJSON(res *writer.PruneResult, opt *writer.PruneOptions) pruneJSON {
	names := func(objects []objstore.Info) []string {
		out := make([]string, len(objects)) // [] rather than null
		for i := range out {
			out[i] = objects[i].Name
		}
		return out
	}
	all := pruneJSON{Deleted: names(res.Objects), Bytes: res.Bytes, DryRun: opt.DryRun, Left: names(res.Left),
		Kept: append([]string{}, res.Kept...), Spared: names(res.Young), SparedBytes: sumSizes(res.Young),
		Grace: max(0, opt.Grace.Seconds()), Versions: res.Versions}
	if opt.Versions || len(res.VersionsLeft) > 0 {
		all.VersionsDeleted, all.VersionsLeft = append([]writer.KeptVersion{}, res.VersionsDeleted...),
			append([]writer.KeptVersion{}, res.VersionsLeft...)
	}
	return all
}
