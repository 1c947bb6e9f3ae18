package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/view"
)

func newHead() *cobra.Command {
	var n int64
	var fields fieldFlags
	cmd := &cobra.Command{
		Use:   "head DATASET",
		Short: "Show the first samples, for people",
		Long: `Print the first samples in storage order: the key and the attributes of each, and a line for each field that describes its bytes. In
programs, use get for the bytes, and ls --json for the sizes.`,
		Example: "  shardtool head out/\n  shardtool head photos/ --layer captions\n  shardtool head 's3://bucket/photos#clean' -n 3",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 0 {
				return usagef("-n %d: give a number of samples", n)
			}
			ds, err := fields.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer ds.Close()
			w := bufio.NewWriter(cmd.OutOrStdout())
			chosen := ds.Selection()
			left := uint64(n)
			for i := uint64(0); i < chosen.Distinct() && left > 0; i++ {
				if ds.Removed(chosen.Number(i)) {
					continue
				}
				left--
				if err := view.Print(cmd.Context(), w, ds, chosen.Number(i)); err != nil {
					_ = w.Flush()
					return fmt.Errorf("sample number %d: %w", chosen.Number(i), err)
				}
			}
			return w.Flush()
		},
	}
	fields.add(cmd)
	cmd.Flags().Int64VarP(&n, "samples", "n", 10, "show this many samples")
	return cmd
}
