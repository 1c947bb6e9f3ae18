package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
)

func newPrune() *cobra.Command {
	var opt writer.PruneOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune DATASET",
		Short: "Delete shards that no kept generation names",
		Long: `Delete objects that no kept generation names: what unfinished packs left, and older generations.

Only objects that shardtool wrote are touched. Do not prune while a pack into the same place runs, or spare young
objects with --grace; a pack that misses its shards fails and publishes nothing.

Exit codes:
` + exitCodes,
		Example: "  shardtool prune out/ --dry-run\n  shardtool prune out/ --keep 2",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.Keep < 1 {
				return usagef("--keep %d: the current generation always stays; use 1 or more", opt.Keep)
			}
			store, generation, err := dataset(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if generation != "" {
				return usagef("prune works on the whole data set: give it without @%s", generation)
			}
			res, err := writer.Prune(cmd.Context(), store, opt)
			if err != nil {
				return err
			}
			if len(res.Kept)+len(res.Objects)+len(res.Left) == 0 {
				return &exitError{exitNotFound, fmt.Errorf("no data set in %v, and nothing that an unfinished pack left: check the path", store)}
			}
			if !opt.DryRun {
				sweep(cmd.Context(), store)
			}
			if asJSON {
				return printPruneJSON(cmd, res, opt.DryRun)
			}
			out, verb := cmd.OutOrStdout(), "deleted"
			if opt.DryRun {
				verb = "would delete"
			}
			for _, o := range res.Objects {
				fmt.Fprintf(out, "%s %s (%s)\n", verb, o.Name, bytesText(uint64(o.Size)))
			}
			for _, o := range res.Left {
				fmt.Fprintf(out, "left %s: named like a shard, but nothing in it says that shardtool wrote it\n", o.Name)
			}
			fmt.Fprintf(out, "%s %s, %s; kept %s\n", verb, plural(len(res.Objects), "object"), bytesText(uint64(res.Bytes)), plural(len(res.Kept), "generation"))
			return nil
		},
	}
	cmd.Flags().IntVar(&opt.Keep, "keep", 1, "generations to keep, the current one included")
	cmd.Flags().BoolVar(&opt.DryRun, "dry-run", false, "say what would go, delete nothing")
	cmd.Flags().DurationVar(&opt.Grace, "grace", 0*time.Second, "spare unnamed objects younger than this")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func printPruneJSON(cmd *cobra.Command, res *writer.PruneResult, dryRun bool) error {
	names := func(n int, at func(i int) string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = at(i)
		}
		return out
	}
	return printJSON(cmd, map[string]any{
		"deleted": names(len(res.Objects), func(i int) string { return res.Objects[i].Name }), "bytes": res.Bytes, "dry_run": dryRun,
		"left": names(len(res.Left), func(i int) string { return res.Left[i].Name }), "kept": names(len(res.Kept), func(i int) string { return res.Kept[i] }),
	})
}
