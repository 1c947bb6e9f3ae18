package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reader"
)

// fieldFlags name the layers of a data set, and the fields that are read.
type fieldFlags struct{ layers, fields []string }

func (f *fieldFlags) add(cmd *cobra.Command) {
	f.addLayers(cmd)
	cmd.Flags().StringSliceVar(&f.fields, "fields", nil, "deliver only these fields, as jpg,caption; caption? may be missing. A layer or a data set with none of them is not read")
	titled(cmd, "Layers")
}

// addLayers adds the flag for commands that deliver no samples.
func (f *fieldFlags) addLayers(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.layers, "layer", nil, "add the fields and attributes of this layer of the data set: its name or its address, @GENERATION for an earlier one (repeatable)")
}

// open opens a data set with the layers.
func (f *fieldFlags) open(ctx context.Context, arg string, opts reader.Options) (ds *reader.Dataset, err error) {
	if opts.Layers, err = readLayers(ctx, arg, f.layers, nil); err != nil {
		return nil, err
	}
	opts.Fields = f.fields
	return openDataset(ctx, arg, opts)
}

// given reports whether samples are delivered otherwise than the data set has them.
func (f *fieldFlags) given() bool { return len(f.layers)+len(f.fields) > 0 }

// readLayers opens the stores of the layers of a data set. A generation that saved names is opened
// where a layer is given without one, if it is still there.
func readLayers(ctx context.Context, arg string, layers []string, saved map[string]string) (all []reader.Layer, err error) {
	addr, _ := cutView(arg)
	addr, _, _ = cutGeneration(addr)
	for _, layer := range layers {
		name, generation, fixed := cutGeneration(layer)
		at, err := address.Layer(addr, name)
		if err != nil {
			return nil, usagef("--layer: %w", err)
		}
		store, _, err := dataset(ctx, at)
		if err != nil {
			return nil, err
		}
		if tables := cmp.Or(saved[objstore.Redact(layer)], saved[layer]); tables != "" && !fixed { // older states have addresses as they were given
			if _, err := store.Stat(ctx, tables); err == nil {
				generation = names.Generation(tables)
			} else {
				warnings.Warn("the generation of the layer that the state names is gone: continuing with the current one", "layer", name, "tables", tables)
			}
		}
		all = append(all, reader.Layer{Name: name, Store: store, Generation: generation})
	}
	return all, nil
}
