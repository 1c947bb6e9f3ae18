package main

import (
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
		Long: `Check that all parts are present and belong together, and publish them as one data set. Shards are not read.

Readers see nothing before that. If parts are missing, commit names them and exits with 6. It may run again, and twice
at the same time: the result is the same. The data set does not depend on which machine packed which part.`,
		Example: "  shardtool commit out/ --parts 8\n  shardtool commit s3://bucket/train --parts 512 --duplicate-keys keep",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := p.store(cmd, args[0])
			if err != nil {
				return err
			}
			if opt.KeepDuplicates, err = keepDuplicates(duplicates); err != nil {
				return err
			}
			if err := checkRun(opt.Memory, 0); err != nil {
				return err
			}
			opt.Name, opt.Parts = p.name, p.parts
			return p.commit(cmd, store, opt)
		},
	}
	p.add(cmd)
	addDuplicates(cmd, &duplicates)
	sizeVar(cmd, &opt.Memory, "memory", 256<<20, "bytes of memory for sorting keys")
	cmd.Flags().StringVar(&opt.TempDir, "temp-dir", "", "folder for spills of sorting (default: the system's)")
	return cmd
}

func (p *partsCommand) commit(cmd *cobra.Command, store objstore.Store, opt writer.CommitOptions) error {
	ctx, begin := cmd.Context(), time.Now()
	limitMemory(opt.Memory, 0)
	sweep(ctx, store) // left by packs of parts that were killed
	res, err := writer.Commit(ctx, store, opt)
	if err != nil {
		return packError(ctx, err, repeated)
	}
	if res.Already {
		fmt.Fprintf(cmd.ErrOrStderr(), "generation %d was published of these %s before\n", res.Generation,
			plural(opt.Parts, "part"))
		res.Skipped = 0 // reported when it was published
	}
	hintPacked(cmd, store, true, true, false) // the sources are not known
	return printResult(cmd, &outputFlags{json: p.json}, store, res, nil, time.Since(begin))
}
