package serve

import (
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
)

// Opened is a data set or a mix, and the function that closes it and everything below it.
type Opened struct {
	Sources *reader.Sources
	Workers int    // of its streams
	Metrics string // address of the metrics; empty: not served
	Close   func()
	// Epoch is the number of samples of an epoch of a mix. End is the position where its stream ends,
	// 2^63 where it has no end.
	Epoch, End uint64
}

// Mixed reports whether the sources form a mix.
func (o *Opened) Mixed() bool { return o.alone() == nil }

// alone returns the data set that is read alone, or nil for a mix.
func (o *Opened) alone() *reader.Dataset {
	for name, ds := range o.Sources.All() {
		if name == "" {
			return ds
		}
	}
	return nil
}

// SourceInfo describes a source of a mix.
type SourceInfo struct {
	Name       string `json:"name"`
	Samples    uint64 `json:"samples"`
	Shards     int    `json:"shards"`
	Blocks     uint64 `json:"blocks"`
	Bytes      uint64 `json:"bytes"`
	Digest     string `json:"digest"`
	Tables     string `json:"tables"`
	Generation uint64 `json:"generation"`
}

// info is the body of INFO. getenv returns the environment of the program that asks.
func (o *Opened) info(getenv func(string) string) *Info {
	i := &Info{
		Fields: []format.FieldTotal{}, Types: map[string]string{}, Layers: map[string]map[string]string{},
		Ranks: ranksFrom(getenv), Metrics: o.Metrics,
	}
	for name, ds := range o.Sources.All() {
		for layer, of := range ds.Layers() {
			if i.Layers[name] == nil {
				i.Layers[name] = map[string]string{}
			}
			i.Layers[name][layer] = of.Info().Tables
		}
	}
	if ds := o.alone(); ds != nil {
		i.add(ds)
		i.Digest, i.Tables, i.Generation = format.DigestString(ds.Digest()), ds.Info().Tables, ds.Info().Generation
		i.View = ds.Selection().ID()
		return i
	}
	i.EpochLength, i.End = o.Epoch, o.End
	for name, ds := range o.Sources.All() {
		i.add(ds)
		i.Sources = append(i.Sources, SourceInfo{
			Name: name, Samples: ds.NumSamples(), Shards: ds.NumShards(), Blocks: ds.Info().Blocks,
			Bytes:  ds.Info().Bytes,
			Digest: format.DigestString(ds.Digest()), Tables: ds.Info().Tables, Generation: ds.Info().Generation,
		})
	}
	return i
}

// samples returns the number of samples of all data sets.
func (o *Opened) samples() (n uint64) {
	for _, ds := range o.Sources.All() {
		n += ds.Selection().Len()
	}
	return n
}

// add adds a data set to the sums. Fields stay in ascending order of names.
func (i *Info) add(ds *reader.Dataset) {
	i.Samples += ds.NumSamples()
	i.Removed += uint64(len(ds.Info().Removed))
	i.Chosen += ds.Selection().Distinct()
	i.EpochSamples += ds.Selection().Len()
	i.Shards += ds.NumShards()
	i.Blocks += ds.Info().Blocks
	i.Bytes += ds.Info().Bytes
	i.DecodedBytes += ds.Info().DecodedBytes
	i.addTypes(ds)
	i.Lists = append(i.Lists, ds.Lists()...)
	slices.Sort(i.Lists)
	i.Lists = slices.Compact(i.Lists)
	for _, f := range ds.Fields() {
		at, before := i.field(f.Name)
		if !before {
			i.Fields = slices.Insert(i.Fields, at, f)
			continue
		}
		sum := &i.Fields[at]
		sum.Samples, sum.Bytes = sum.Samples+f.Samples, sum.Bytes+f.Bytes
		sum.Min, sum.Max = min(sum.Min, f.Min), max(sum.Max, f.Max)
	}
}

// field returns the place of a field in Fields, and whether it is there.
func (i *Info) field(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(i.Fields, name,
		func(f format.FieldTotal, name string) int { return strings.Compare(f.Name, name) })
}

// addTypes adds the types of the fields of a data set. A field that several data sets have keeps
// its type only where all of them agree.
func (i *Info) addTypes(ds *reader.Dataset) {
	types := map[string]string{}
	maps.Copy(types, typesOf(ds.Info().Meta))
	for _, layer := range ds.Layers() {
		for name, kind := range typesOf(layer.Info().Meta) {
			if slices.ContainsFunc(layer.Info().Fields, func(f format.FieldTotal) bool { return f.Name == name }) {
				types[name] = kind
			}
		}
	}
	for _, f := range ds.Fields() {
		kind, known := types[f.Name]
		_, before := i.field(f.Name)
		switch {
		case before && i.Types[f.Name] != kind:
			delete(i.Types, f.Name)
		case !before && known:
			i.Types[f.Name] = kind
		}
	}
}
