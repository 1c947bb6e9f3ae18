package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

func newCommit() *cobra.Command {
	var p partsCommand
	opt := writer.CommitOptions{}
	duplicates := ""
	cmd := &cobra.Command{
		Use:   "commit DATASET",
		Short: "Publish a pack in parts",
		Long: `Check that all parts are there and go together, and publish them as one data set. Shards are not read.

Nothing is visible to readers before. With parts missing it names them and exits with 6. It may be run again, and by two at
once: the result is the same. What is published does not depend on which machine packed which part.

Exit codes:
` + exitCodes,
		Example: "  shardtool commit out/ --parts 8\n  shardtool commit s3://bucket/train --parts 512 --duplicate-keys keep",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := p.store(cmd, args[0])
			if err != nil {
				return err
			}
			if duplicates != "fail" && duplicates != "keep" {
				return usagef("--duplicate-keys %q: use fail or keep", duplicates)
			}
			if err := checkRun(opt.Memory, 0); err != nil {
				return err
			}
			opt.Name, opt.Parts, opt.KeepDuplicates = p.name, p.parts, duplicates == "keep"
			return p.commit(cmd, store, opt)
		},
	}
	p.add(cmd)
	cmd.Flags().StringVar(&duplicates, "duplicate-keys", "fail", "a key that comes again in another shard: fail or keep")
	sizeVar(cmd, &opt.Memory, "memory", 256<<20, "bytes for sorting keys")
	cmd.Flags().StringVar(&opt.TempDir, "temp-dir", "", "where sorting spills to (default: the system's)")
	return cmd
}

func (p *partsCommand) commit(cmd *cobra.Command, store objstore.Store, opt writer.CommitOptions) error {
	ctx, begin := cmd.Context(), time.Now()
	limitMemory(opt.Memory, 0)
	sweep(ctx, store) // of the parts that were killed
	res, err := writer.Commit(ctx, store, opt)
	if err != nil {
		return commitError(ctx, err)
	}
	if res.Already {
		fmt.Fprintf(cmd.ErrOrStderr(), "generation %d was published of these %s before\n", res.Generation, plural(opt.Parts, "part"))
		res.Skipped = 0 // told when it was published
	}
	return printResult(cmd, p.json, store, res, time.Since(begin))
}

func commitError(ctx context.Context, err error) error {
	if stopped(ctx) {
		return stoppedError(ctx, err, "nothing was published; the same command begins again")
	}
	return partsError(packError(ctx, err))
}
