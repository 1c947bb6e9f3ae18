package main

import (
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
)

// addLayout adds --layout.
func (f *packFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", "samples", "samples: any fields; stacked: equal arrays (.npy), as rows of one array a block; auto: stacked where possible")
	cmd.Flags().Lookup("layout").DefValue = "auto for arrays of token ids, else samples"
}

// defaultLayout stacks arrays of token ids unless --layout is given: samples are equal arrays, except
// for remainders. Joined documents have a second field, which is no array.
func (f *packFlags) defaultLayout(cmd *cobra.Command, found *found) {
	if !cmd.Flags().Changed("layout") && found.kind == &tokensKind && !f.tokens.joins(found.kind) {
		f.opt.Layout = writer.LayoutAuto
	}
}

// chooseLayout sets the layout of the new shards.
func (f *packFlags) chooseLayout() (err error) {
	if f.opt.Layout, err = writer.ParseLayout(f.layout); err != nil {
		return usagef("--layout %q: use samples, stacked or auto", f.layout)
	}
	return nil
}
