package ingest

import (
	"context"
	"errors"

	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// datasetKind is the kind of data sets, whole or in part.
var datasetKind = kind{
	of:      &recognise.Kind{One: "a data set", Many: "data sets"},
	rows:    true,
	options: []string{"include", "exclude", "columns", "rename", "where", "share", "share-salt", "share-by", "layer", "key-prefix"},
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

// LeftOut counts the samples that were not selected, see writer.LeftOut.
func (s *datasetSource) LeftOut() (before, behind writer.RowsLeft) { return writer.LeftOut(s.Splitter) }

// Close closes the source, then the data sets.
func (s *datasetSource) Close() error {
	err := s.Splitter.Close()
	for _, d := range s.sets {
		err = errors.Join(err, d.Close())
	}
	return err
}

func openDatasets(ctx context.Context, f *Found) (_ writer.Source, size int64, err error) {
	s := &datasetSource{}
	defer func() {
		if err != nil {
			for _, d := range s.sets {
				d.Close()
			}
		}
	}()
	all := uint64(0)
	o := open.Options{Reader: reader.Options{Workers: f.Workers, Memory: max(f.Memory/2, leastMemory)},
		Layers: f.Layers, Log: f.Log}
	for i := 0; i < len(f.Rows.Columns) && len(f.Layers) > 0; i++ { // of other data sets too
		o.Reader.Fields = append(o.Reader.Fields, f.Rows.Columns[i]+"?")
	}
	for _, src := range f.srcs {
		d, err := open.Dataset(ctx, src.Secret(), o)
		if err != nil {
			return nil, 0, err
		}
		s.sets, all = append(s.sets, d), all+d.NumSamples()
		for _, a := range d.Info().Attributes {
			if field, ok := f.Lengths[a.Name]; ok {
				return nil, 0, wrongf("%s %s=len(%s): the data set %s has an attribute of this name, which is kept: leave %s out, or choose another name", f.opt("attr"), a.Name, field, src, f.opt("attr"))
			}
		}
	}
	opt := reshard.Options{
		Fields: f.Rows.Columns, Rename: f.Rows.Rename, Where: f.Rows.Where,
		Include: f.Include, Exclude: f.Exclude, Share: f.Share, Classes: f.Classes, KeyPrefix: f.KeyPrefix,
	}
	s.Splitter, err = reshard.New(ctx, s.sets, opt)
	if err != nil {
		return nil, 0, err
	}
	_, size = s.Total()
	of := ""
	if size > 0 {
		of = ", " + plain.Bytes(uint64(size)) + " of fields"
	}
	if opt.Share != (reshard.Share{}) || len(opt.Where)+len(opt.Include)+len(opt.Exclude) > 0 {
		of += " to choose from"
	}
	f.known("%s in %s%s", plain.Plural(all, "sample"), plain.Plural(len(s.sets), "data set"), of)
	return s, size, nil
}
