package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reshard"
)

func newRemove() *cobra.Command {
	var o reshard.RemoveOptions
	var keys string
	var layers []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove DATASET KEY… | --keys FILE",
		Short: "Take samples out of a data set by their keys",
		Long: `Publish a generation in which the samples with the keys of a file are removed. No reader delivers them from then on.
Every other sample keeps its number and its place in every order: a removed sample is a hole, and batches with holes are
shorter. So checkpoints stay valid, and a job that resumes delivers the same samples at the same places, without the
removed ones. No shard is read or written, and the command takes about a second.

The bytes stay in the shards until ` + "`shardtool purge`" + `. Earlier generations still deliver the samples, and so do jobs that
run; stop and resume them. Until the bytes are purged, --restore puts samples back.

The samples are also removed from the layers in layers/ below DATASET and from layers that --layer names. Run an
interrupted command again to finish it.

KEYs are named one by one, or FILE has one per line; - reads standard input. Keys that no sample has are counted, ten are named, and nothing is
removed unless --allow-missing is set.`,
		Example: "  shardtool remove out/ dog/0007 dog/0031\n  shardtool remove out/ --keys withdrawn.txt --dry-run\n  shardtool remove out/ --keys withdrawn.txt\n  shardtool purge out/ --generations > receipt.json --json",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			list := args[1:]
			if keys != "" && len(list) > 0 {
				return usagef("remove takes keys or --keys FILE, not both: leave one out")
			}
			if keys == "" && len(list) == 0 {
				return usagef("name keys, as in `shardtool remove DATASET KEY…`, or --keys FILE, a file with one key a line; see `%s --help`", cmd.CommandPath())
			}
			store, err := wholeDataset(cmd.Context(), "remove", args[0])
			if err != nil {
				return err
			}
			if keys != "" {
				if list, err = readKeys(cmd, keys); err != nil {
					return err
				}
			}
			if o.Layers, _, err = layersOf(cmd.Context(), "remove", args[0], store, layers); err != nil {
				return err
			}
			r, err := reshard.RemoveKeys(cmd.Context(), store, list, o)
			if err != nil {
				return err
			}
			return present(cmd, asJSON, r, func(w io.Writer) { printRemoved(w, r, &o) })
		},
	}
	cmd.Flags().StringVar(&keys, "keys", "", "file with one key a line; - for standard input")
	cmd.Flags().BoolVar(&o.AllowMissing, "allow-missing", false, "accept keys that no sample has")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print what would be removed, change nothing")
	cmd.Flags().BoolVar(&o.Restore, "restore", false, "put removed samples back whose bytes were not purged")
	addElsewhere(cmd, &layers)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func readKeys(cmd *cobra.Command, file string) ([]string, error) {
	from := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usagef("--keys %s: there is no such file: check the path", file)
		}
		if err != nil {
			return nil, usage(err)
		}
		defer f.Close()
		from = f
	}
	keys, err := reshard.ReadKeys(from)
	if err != nil {
		return nil, usage(fmt.Errorf("--keys %s: %w", file, err))
	}
	if len(keys) == 0 {
		return nil, usagef("--keys %s: the file has no keys: write one key a line", file)
	}
	return keys, nil
}

func printRemoved(w io.Writer, r *reshard.RemoveReport, o *reshard.RemoveOptions) {
	did, before, again := "removed", "was removed before", "were removed before"
	if o.Restore {
		did, before, again = "restored", "was not removed", "were not removed"
	}
	if o.DryRun {
		did = "would have " + did
	}
	fmt.Fprintf(w, "%s %s in %s\n", did, plural(r.Samples, "sample"), plural(r.Shards, "shard"))
	if r.Already == 1 {
		again = before
	}
	if r.Already > 0 {
		fmt.Fprintf(w, "%s %s\n", plural(r.Already, "sample"), again)
	}
	if r.Missing > 0 {
		fmt.Fprintf(w, "no sample has %s:", plural(r.Missing, "key"))
		for _, k := range r.MissingKeys {
			fmt.Fprintf(w, " %q", k)
		}
		if r.Missing > len(r.MissingKeys) {
			fmt.Fprint(w, " …")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "generation %d (%s): %s of %s are removed\n", r.Generation, r.Tables, countText(r.Removed),
		plural(r.Total, "sample"))
	for _, l := range r.Layers {
		switch {
		case l.Error != "":
			fmt.Fprintf(w, "layer %s was left alone: %s\n", shown(l.Layer), l.Error)
		case l.Changed:
			fmt.Fprintf(w, "layer %s: generation %d (%s)\n", shown(l.Layer), l.Generation, l.Tables)
		}
	}
	if len(r.Layers) > 0 {
		fmt.Fprint(w, layersNote)
	}
}
