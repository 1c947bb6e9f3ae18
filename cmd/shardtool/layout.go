package main

import (
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/writer"
)

// addLayout adds --layout.
func (f *packFlags) addLayout(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.layout, "layout", "samples", "samples: any fields; stacked: equal arrays (.npy), as rows of one array a block; auto: stacked where possible")
	cmd.Flags().Lookup("layout").DefValue = "auto for arrays and for Parquet files with lists of one length only, else samples"
}

// defaultLayout stacks arrays of token ids unless --layout is given: samples are equal arrays,
// except for remainders. Joined documents have a second field, which is no array. Parquet files are
// stacked where their footers show equal arrays, see evenLayout.
func (f *packFlags) defaultLayout(cmd *cobra.Command, found *found) {
	f.layoutGiven = cmd.Flags().Changed("layout") || f.tokens.joins(found.kind)
	if !f.layoutGiven && found.kind.tokens {
		f.opt.Layout = writer.LayoutAuto
	}
}

// evenLayout stacks rows whose fields are lists of numbers of one length, unless --layout is given.
func (f *packFlags) evenLayout(even bool) {
	if even && !f.layoutGiven {
		f.opt.Layout = writer.LayoutAuto
	}
}
