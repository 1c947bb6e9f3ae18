package open

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/plain"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
)

var mixEndings = []string{".yaml", ".yml", ".json"}

// IsMix reports whether a name is one of a mix file.
func IsMix(name string) bool {
	return slices.Contains(mixEndings, path.Ext(name)) && path.Base(name) != format.ManifestName
}

// Spec returns what a name stands for, without opening it: the one data set, or the sources of a
// mix file. Its order is to be set. An error of a mix file is a [*reader.SpecError].
func Spec(name string, o Options) (*reader.Spec, error) {
	switch {
	case !IsMix(name):
		return &reader.Spec{Sources: []reader.SourceSpec{{Data: name, Layers: o.Layers}}}, nil
	case len(o.Where) > 0 || o.Keys != "":
		return nil, wrongf("where and keys: a mix has them for each source, as members of the source")
	case len(o.Layers) > 0:
		return nil, wrongf("layers: a mix file has layers for each source")
	}
	name, err := address.Local(name)
	if err != nil {
		return nil, &NameError{err}
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no mix file %s: check the path; docs/mixing.md describes mixes%w", name,
			plain.Silent(err))
	}
	if err != nil {
		return nil, err
	}
	return mixfile.Parse(name, text)
}

// Sources opens the data set or the mix of a name, for a run that its Resolve decides. With a
// checkpoint it opens the generations that the checkpoint names. The caller must Close it.
func Sources(ctx context.Context, name string, from *reader.Checkpoint, o Options) (*reader.Sources, error) {
	spec, err := Spec(name, o)
	if err != nil {
		return nil, err
	}
	return reader.OpenSources(ctx, *spec, Opener(o), from)
}
