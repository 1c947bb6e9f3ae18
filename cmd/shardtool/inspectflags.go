package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type inspectFlags struct {
	shard   string
	layers  fieldFlags
	blocks  bool
	against string
	// checkpoint is the file of a checkpoint to describe.
	checkpoint string
	mixed      dryFlags
	json       bool
}

// dryFlags are the flags of inspect that only a mix has.
type dryFlags struct {
	walkFlags
	only []string // names of all of them
}

func (f *dryFlags) add(cmd *cobra.Command) {
	was := map[string]bool{"help": true}
	cmd.Flags().VisitAll(func(fl *pflag.Flag) { was[fl.Name] = true })
	f.order.add(cmd)
	f.order.addCheckpointIn(cmd)
	f.order.addUnits(cmd)
	f.order.mix.add(cmd)
	f.job.add(cmd)
	cmd.Flags().Uint64Var(&f.steps, "steps", 0, "number of steps (0: one epoch of the mix)")
	cmd.Flags().StringVar(&f.given, "worlds", "1,2,4,8", "world sizes to list")
	shown := []string{"shuffle", "global-batch", "shuffle-memory", "tail", "checkpoint-in", "change-mix", "skip-steps",
		"pack", "bucket"}
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if was[fl.Name] {
			return
		}
		f.only = append(f.only, fl.Name)
		fl.Hidden = (fl.Name == "limit" || slices.Contains(orderFlagNames, fl.Name) ||
			slices.Contains(unitFlagNames, fl.Name)) && !slices.Contains(shown, fl.Name)
		fl.Usage = "for a mix: " + strings.TrimPrefix(fl.Usage, "for a mix: ")
	})
}

// refuse refuses the flags for a data set.
func (f *dryFlags) refuse(cmd *cobra.Command) error {
	if err := f.fill(); err != nil {
		return err
	}
	for _, flag := range f.only {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for mixes", flag)
		}
	}
	return nil
}
