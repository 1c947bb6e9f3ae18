package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/internal/names"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// shareFlags select a share of the samples of data sets, by key, and the layers that add to them.
type shareFlags struct {
	layers          fieldFlags
	share, salt, by string
	of              reshard.Share
}

func (f *shareFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.share, "share", "", "data sets: take the samples whose key's hash is in this share, as 0%..90%")
	fl.StringVar(&f.salt, "share-salt", "", "data sets: hash this text before each key, for a division independent of others")
	fl.StringVar(&f.by, "share-by", "key", "data sets: hash the key, or its folder, which keeps the samples of a folder together")
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

// datasetKind is the kind of data sets, whole or in part.
var datasetKind = kind{
	of:    &recognise.Kind{One: "a data set", Many: "data sets"},
	flags: []string{"include", "exclude", "columns", "rename", "where", "share", "share-salt", "share-by", "layer"},
	instead: map[string]string{
		"pack-shuffle": "rely on the shuffle when reading",
		"class-field":  "its fields come as they are, with the names of its classes",
		"":             "its samples have their keys and attributes",
	},
	open: openDatasets,
}

// datasetSource closes the data sets with the source.
type datasetSource struct {
	writer.Splitter
	sets []*reader.Dataset
}

// Close closes the source, then the data sets.
func (s *datasetSource) Close() error {
	err := s.Splitter.Close()
	for _, d := range s.sets {
		err = errors.Join(err, d.Close())
	}
	return err
}

// rowsBefore opens the rows of the current generation of a layer, to which others are added, and of
// the one before it, if that is still there.
func rowsBefore(ctx context.Context, store objstore.Store, opt *writer.Options) (now, earlier writer.Source, err error) {
	rows := func(generation string) (*datasetSource, error) {
		d, err := reader.Open(ctx, store, reader.Options{Generation: generation, Workers: opt.Workers, Memory: max(opt.Memory/4, minMemory)})
		if err != nil {
			return nil, err
		}
		of, err := reshard.New(ctx, []*reader.Dataset{d}, reshard.Options{})
		if err != nil {
			d.Close()
			return nil, err
		}
		return &datasetSource{of, []*reader.Dataset{d}}, nil
	}
	current, err := rows("")
	if err != nil {
		return nil, nil, err
	}
	if parent := names.Generation(current.sets[0].Info().Parent); parent != "" {
		if of, err := rows(parent); err == nil {
			earlier = of
		}
	}
	return current, earlier, nil
}

func openDatasets(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (_ writer.Source, size int64, err error) {
	s := &datasetSource{}
	defer func() {
		if err != nil {
			for _, d := range s.sets {
				d.Close()
			}
		}
	}()
	all, memory := uint64(0), max(f.opt.Memory/2, minMemory)
	limitMemory(f.opt.Memory+memory, encoderMemory(&f.opt))
	for _, src := range found.srcs {
		opts := reader.Options{Workers: f.opt.Workers, Memory: memory}
		for i := 0; i < len(f.rows.columns) && len(f.share.layers.layers) > 0; i++ { // of other data sets too
			opts.Fields = append(opts.Fields, f.rows.columns[i]+"?")
		}
		o := opening(ctx, opts)
		o.Layers = f.share.layers.layers
		d, err := open.Dataset(ctx, src, o)
		if err != nil {
			return nil, 0, err
		}
		s.sets, all = append(s.sets, d), all+d.NumSamples()
		for _, a := range d.Info().Attributes {
			if field, ok := f.rows.lengths[a.Name]; ok {
				return nil, 0, usagef("--attr %s=len(%s): the data set %s has an attribute of this name, which is kept: leave --attr out, or choose another name", a.Name, field, src)
			}
		}
	}
	opt := reshard.Options{
		Fields: f.rows.columns, Rename: f.rows.renamed, Where: f.rows.where,
		Include: f.files.Include, Exclude: f.files.Exclude, Share: f.share.of, Classes: f.files.Classes,
	}
	s.Splitter, err = reshard.New(ctx, s.sets, opt)
	if err != nil {
		return nil, 0, optionError(err)
	}
	_, size = s.Total()
	of := ""
	if size > 0 {
		of = ", " + bytesText(uint64(size)) + " of fields"
	}
	if opt.Share != (reshard.Share{}) || len(opt.Where)+len(opt.Include)+len(opt.Exclude) > 0 {
		of += " to choose from"
	}
	f.known(stderr, "%s in %s%s", plural(all, "sample"), plural(len(s.sets), "data set"), of)
	return s, size, nil
}

// provenance records the share in the metadata of the data set.
func (f *shareFlags) provenance(to map[string]string) {
	for key, value := range map[string]string{"share": f.share, "share_salt": f.salt, "share_by": f.by} {
		if f.share != "" && value != "" {
			to[key] = value
		}
	}
}
