// Package open opens data sets by the names that people write: on a command line, in a
// configuration, in a mix file.
//
//	out/                        a data set in a folder
//	s3://bucket/out             at any address of package address
//	out/#clean                  the samples of a view of it, by name or ID
//	out/@89abcdef01234567       a generation of it
//	mix.yaml                    a mix of data sets, see package mixfile
//
// [Dataset] opens one data set, for all ways of reading. [Sources] opens what a training run reads,
// a data set or a mix, anew or from a checkpoint:
//
//	sources, err := open.Sources(ctx, "mix.yaml", nil, open.Options{})
//	...
//	run, err := sources.Resolve(ctx, reader.Spec{Order: order.Choice{Shuffle: true}}, nil, reader.Change{}, reader.Planning{})
//	...
//	stream, err := run.Stream(ctx, reader.StreamOptions{World: 1})
//
// The name of a folder may contain a # or an @: a # is part of it where that folder exists, and
// an @ unless 16 hexadecimal digits follow, up to the end of the name.
//
// The package links every kind of store. A program that reads one kind opens it itself, and calls
// [reader.Open].
package open

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
)

// Options say what is read of the data sets that names name. The zero value reads all of them, with
// the defaults of package reader.
type Options struct {
	// Reader has the options of each data set. Its View, its Generation and its Layers are not used:
	// the name and the Layers below have them.
	Reader reader.Options
	// Layers are names of layers of the data set, or addresses, with @GENERATION for an earlier one.
	// In a mix the sources have them.
	Layers []string
	// Where are expressions over attributes that all hold for the samples read, and Keys is a file
	// with their keys, one in each line. In a mix the sources have them.
	Where []string
	Keys  string
	// LayerTables are the generations of layers, by source (empty for a data set alone) and layer,
	// that a state was saved with: the names of their tables. Where one exists no longer, the current
	// one is opened, and Log says so.
	LayerTables map[string]map[string]string
	// Wrap returns the store to read instead of each that is opened, such as the Wrap of a cache.
	Wrap func(objstore.Store) objstore.Store
	// Log receives warnings that are not errors. Nil means none.
	Log *slog.Logger
}

func (o *Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// NameError is the error of a name that names no data set, or more than is asked for. It says what
// to write.
type NameError struct{ Err error }

// Error returns the text of Err.
func (e *NameError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *NameError) Unwrap() error { return e.Err }

func wrongf(format string, args ...any) error { return &NameError{fmt.Errorf(format, args...)} }

// Store opens the store of a data set, which need not exist, for programs that write to it or
// delete in it. It returns the generation that the name has, or "". A name with a view is refused.
func Store(ctx context.Context, name string, o Options) (store objstore.Store, generation string, err error) {
	name, err = address.Local(name)
	if err != nil {
		return nil, "", &NameError{err}
	}
	if name == "-" {
		return nil, "", wrongf("a data set cannot be - (stdin or stdout): name its folder")
	}
	if err := cmp.Or(Whole(name), refusePage(name), refuseFile(name)); err != nil {
		return nil, "", err
	}
	addr, generation, _ := CutGeneration(name)
	if store, err = address.Open(ctx, addr, address.Options{Logger: o.log()}); err != nil {
		return nil, "", &NameError{err}
	}
	if o.Wrap != nil {
		store = o.Wrap(store)
	}
	return store, generation, nil
}

// Dataset opens a data set, with its layers. The caller must Close it.
//
// The error of a name is a [*NameError], of a data set or a layer that is not there it wraps
// [fs.ErrNotExist], and of Where and Keys it is one of package curate.
func Dataset(ctx context.Context, name string, o Options) (*reader.Dataset, error) {
	return Opener(o)(ctx, &reader.SourceSpec{Data: name, Layers: o.Layers}, "")
}

// Opener returns the function that opens the sources of a mix, for [reader.OpenSources]. The Where
// of a source takes the place of o.Where, and its Keys of o.Keys; its Layers are the only ones.
func Opener(o Options) reader.Opener {
	return func(ctx context.Context, s *reader.SourceSpec, tables string) (*reader.Dataset, error) {
		opts, err := o.Reader, error(nil)
		if opts.Layers, err = Layers(ctx, s.Data, s.Layers, o.LayerTables[s.Name], o); err != nil {
			return nil, err
		}
		ds, err := openAt(ctx, s.Data, opts, tables, &o)
		if err != nil {
			return nil, err
		}
		spec := curate.Spec{Where: o.Where}
		if s.Where != "" {
			spec.Where = []string{s.Where}
		}
		if keys := cmp.Or(s.Keys, o.Keys); keys != "" {
			spec.Keys = curate.KeyFile(keys)
		}
		if err := choose(ctx, ds, spec); err != nil {
			ds.Close()
			return nil, err
		}
		return ds, nil
	}
}

// choose has a data set use the view that a spec makes, which is not stored, if it chooses
// anything.
func choose(ctx context.Context, ds *reader.Dataset, spec curate.Spec) error {
	if len(spec.Where) == 0 && spec.Keys == nil {
		return nil
	}
	v, _, err := curate.Make(ctx, ds, spec)
	if err != nil {
		return err
	}
	return ds.UseView(v)
}

// openAt opens the generation that a name has, or else the newest one with the samples of the
// generation that a checkpoint names (tables). It warns if the two differ.
func openAt(ctx context.Context, name string, opts reader.Options, tables string, o *Options) (*reader.Dataset, error) {
	name, err := address.Local(name)
	if err != nil {
		return nil, &NameError{err}
	}
	whole, view := CutView(name)
	store, generation, err := Store(ctx, whole, *o)
	if err != nil {
		return nil, err
	}
	opts.View = view
	if opts.Generation = generation; generation != "" {
		ds, err := reader.Open(ctx, store, opts)
		return ds, notFound(whole, err)
	}
	ds, err := reader.OpenResumed(ctx, store, opts, tables)
	if err == nil && tables != "" && ds.Info().Tables != tables {
		o.log().Warn("continuing on another generation than the checkpoint names: it is the newest one", "dataset",
			store,
			"generation", ds.Info().Generation, "tables", ds.Info().Tables, "checkpoint", tables)
	}
	return ds, notFound(whole, err)
}

// Layers opens the stores of layers of the data set of a name, for [reader.Options]. A generation
// that saved names is opened where a layer is given without one, if it is still there.
func Layers(ctx context.Context, name string, layers []string, saved map[string]string,
	o Options) (all []reader.Layer, err error) {
	addr, _ := CutView(name)
	addr, _, _ = CutGeneration(addr)
	for _, layer := range layers {
		name, generation, fixed := CutGeneration(layer)
		at, err := address.Layer(addr, name)
		if err != nil {
			return nil, &NameError{err}
		}
		store, _, err := Store(ctx, at, o)
		if err != nil {
			return nil, err
		}
		// older states have addresses as they were given
		if tables := cmp.Or(saved[objstore.NewAddress(layer).String()], saved[layer]); tables != "" && !fixed {
			if _, err := store.Stat(ctx, tables); err == nil {
				generation = names.Generation(tables)
			} else {
				o.log().Warn("the generation of the layer that the state names is gone: continuing with the current one", "layer", objstore.NewAddress(name), "tables", tables)
			}
		}
		all = append(all, reader.Layer{Name: name, Store: store, Generation: generation})
	}
	return all, nil
}
