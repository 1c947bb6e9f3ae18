package open

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sys/plain"
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
// mix file, whose relative paths begin at its folder. Its order is to be set. An error of a mix
// file is a [*reader.SpecError].
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
	spec, err := mixfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	for i := range spec.Sources {
		s := &spec.Sources[i]
		s.Data, s.Keys = beside(name, s.Data), beside(name, s.Keys)
		for k, layer := range s.Layers {
			if strings.HasPrefix(layer, ".") { // a name does not begin with a dot
				s.Layers[k] = beside(name, layer)
			}
		}
	}
	return spec, nil
}

// beside returns the path that a mix file means. A relative one begins at the folder of the file,
// so that the file may be read from anywhere; where that folder has no such path and the current
// folder has it, it begins there.
func beside(file, of string) string {
	if dir := filepath.Dir(file); of == "" || dir == "." || filepath.IsAbs(of) || strings.Contains(of, ":/") ||
		strings.HasPrefix(of, "~") {
		return of
	} else if there := filepath.Join(dir, of); exists(there) || !exists(of) {
		return there
	}
	return of
}

// exists reports whether the folder or file of a name exists, whose view and generation may not.
func exists(name string) bool {
	whole, _ := CutView(name)
	whole, _, _ = CutGeneration(whole)
	_, err := os.Stat(whole)
	return err == nil
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
