package main

import (
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
)

// addLayout adds --layout.
func (f *packFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", "samples", "samples: any fields; stacked: equal arrays (.npy), as rows of one array a block; auto: stacked where possible")
}

// chooseLayout sets the layout of the new shards.
func (f *packFlags) chooseLayout() (err error) {
	if f.opt.Layout, err = writer.ParseLayout(f.layout); err != nil {
		return usagef("--layout %q: use samples, stacked or auto", f.layout)
	}
	return nil
}
