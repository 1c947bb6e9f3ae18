package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

// fieldFlags name the layers of a data set, and the fields that are read.
type fieldFlags struct{ layers, fields []string }

func (f *fieldFlags) add(cmd *cobra.Command) {
	f.addLayers(cmd)
	cmd.Flags().StringSliceVar(&f.fields, "fields", nil,
		"deliver only these fields, as jpg,caption; caption? may be missing. A layer or a data set with none of them is not read")
	titled(cmd, "Layers")
}

// addLayers adds the flag for commands that deliver no samples.
func (f *fieldFlags) addLayers(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.layers, "layer", nil,
		"add the fields and attributes of this layer of the data set: its name or its address, @GENERATION for an earlier one (repeatable)")
}

// open opens a data set with the layers.
func (f *fieldFlags) open(ctx context.Context, arg string) (*reader.Dataset, error) {
	o := opening(ctx, reader.Options{Fields: f.fields})
	o.Layers = f.layers
	ds, err := open.Dataset(ctx, arg, o)
	if err != nil {
		return nil, err
	}
	if err := reader.CheckFields(ds); err != nil {
		ds.Close()
		return nil, err
	}
	return ds, nil
}

// given reports whether samples are delivered otherwise than the data set has them.
func (f *fieldFlags) given() bool { return len(f.layers)+len(f.fields) > 0 }
