package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// shareFlags select a share of the samples of data sets, by key, and the layers that add to them.
type shareFlags struct {
	layers          fieldFlags
	share, salt, by string
}

func (f *shareFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.share, "share", "", "data sets: take the samples whose key's hash is in this share, as 0%..90%")
	fl.StringVar(&f.salt, "share-salt", "",
		"data sets: hash this text before each key, for a division independent of others")
	fl.StringVar(&f.by, "share-by", "key",
		"data sets: hash the key, or its folder, which keeps the samples of a folder together")
	f.layers.addLayers(cmd)
	fl.Lookup("layer").Usage = "data sets: take the fields and attributes of this layer too, by name or address (may be repeated)"
	titled(cmd, "Sources")
}

// options reads the share.
func (f *shareFlags) options(cmd *cobra.Command) (reshard.Share, error) {
	if f.share == "" {
		for _, flag := range []string{"share-salt", "share-by"} {
			if cmd.Flags().Changed(flag) {
				return reshard.Share{}, usagef("--%s goes with --share: write that too, as in --share 0%%..90%%", flag)
			}
		}
		return reshard.Share{}, nil
	}
	s, err := reshard.ParseShare(f.share)
	if err != nil {
		return s, usagef("--%w", err)
	}
	s.Salt = f.salt
	s.Folders, err = choose("share-by", f.by, "key", "folder")
	return s, err
}

// provenance records the share in the metadata of the data set.
func (f *shareFlags) provenance(to map[string]string) {
	for key, value := range map[string]string{"share": f.share, "share_salt": f.salt, "share_by": f.by} {
		if f.share != "" && value != "" {
			to[key] = value
		}
	}
}

// rowsOf closes the data set with its rows.
type rowsOf struct {
	writer.Splitter
	set *reader.Dataset
}

// Close closes the source, then the data set.
func (s *rowsOf) Close() error { return errors.Join(s.Splitter.Close(), s.set.Close()) }

// rowsBefore opens the rows of the current generation of a layer, to which others are added, and of
// the one before it, if that is still there.
func rowsBefore(ctx context.Context, store objstore.Store,
	opt *writer.Options) (now, earlier writer.Source, err error) {
	rows := func(generation string) (*rowsOf, error) {
		d, err := reader.Open(ctx, store, reader.Options{Generation: generation, Workers: opt.Workers,
			Memory: max(opt.Memory/4, minMemory)})
		if err != nil {
			return nil, err
		}
		of, err := reshard.New(ctx, []*reader.Dataset{d}, reshard.Options{})
		if err != nil {
			d.Close()
			return nil, err
		}
		return &rowsOf{of, d}, nil
	}
	current, err := rows("")
	if err != nil {
		return nil, nil, err
	}
	if parent := names.Generation(current.set.Info().Parent); parent != "" {
		if of, err := rows(parent); err == nil {
			earlier = of
		}
	}
	return current, earlier, nil
}
