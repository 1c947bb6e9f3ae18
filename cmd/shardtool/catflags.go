package main

import "github.com/spf13/cobra"

type catFlags struct {
	cache cacheFlags
	order orderFlags
	stats statsFlags
	tune  tuneFlags
	outputFlags
	out         string
	checkpoints bool
	onError     string
	maxSkipped  limitFlag
}

// bar counts samples.
func (f *catFlags) bar(cmd *cobra.Command, samples int64) *progress {
	return newBar(cmd.ErrOrStderr(), cmd.OutOrStdout(), "cat", samplesOf(samples), f.quiet)
}
