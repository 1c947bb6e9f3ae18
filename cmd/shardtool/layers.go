package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/writer"
)

// layerStore opens the store of a layer of a data set.
func layerStore(ctx context.Context, command, dataset, layer string) (objstore.Store, error) {
	addr, err := address.Layer(dataset, layer)
	if err != nil {
		return nil, usage(err)
	}
	return wholeDataset(ctx, command, addr)
}

// layersOf opens the layers in the folder of a data set, which have names, and those at addresses
// elsewhere.
func layersOf(ctx context.Context, command, dataset string, base objstore.Store,
	elsewhere []string) (all []objstore.Store, names []string, err error) {
	names, err = writer.Layers(ctx, base)
	if errors.Is(err, objstore.ErrNoList) && command == "layer ls" && len(elsewhere) > 0 {
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, layer := range slices.Concat(names, elsewhere) {
		store, err := layerStore(ctx, command, dataset, layer)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, store)
	}
	return all, names, nil
}

// inspectLayers describes the layers that layersOf opens.
func inspectLayers(ctx context.Context, command, dataset string, base objstore.Store,
	elsewhere []string) ([]*writer.LayerInfo, error) {
	stores, names, err := layersOf(ctx, command, dataset, base, elsewhere)
	list := []*writer.LayerInfo{}
	for i, store := range stores {
		l, err := writer.InspectLayer(ctx, store, base)
		if err != nil {
			return nil, err
		}
		if i < len(names) {
			l.Name = names[i]
		}
		list = append(list, l)
	}
	return list, err
}

// addElsewhere adds the flag that names layers elsewhere.
func addElsewhere(cmd *cobra.Command, layers *[]string) {
	cmd.Flags().StringArrayVar(layers, "layer", nil,
		"a layer of the data set at another `ADDRESS` than in layers/ (may be repeated)")
}
