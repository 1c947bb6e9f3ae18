package address

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/internal/format/names"
)

// ErrLayer reports what is neither the name of a layer nor an address.
var ErrLayer = errors.New("not a layer's name or address")

// Layer returns the address of a layer of the data set at an address: the folder layers/NAME below
// it for a name, with the settings of the data set's address, and otherwise the address itself. A
// path begins with a slash or a dot, so that it is told apart from a name. A name whose folder is a
// link is refused. The error wraps ErrLayer.
func Layer(dataset, layer string) (string, error) {
	layer, err := Local(layer)
	if err != nil {
		return "", err
	}
	if dataset, err = Local(dataset); err != nil {
		return "", err
	}
	switch {
	case names.IsLabel(layer):
		_, _, remote := cutScheme(dataset)
		if !remote {
			return filepath.Join(dataset, filepath.FromSlash(names.Layer(layer))), linked(dataset, layer)
		}
		place, query, settings := strings.Cut(dataset, "?")
		if settings {
			query = "?" + query
		}
		return strings.TrimRight(place, "/") + "/" + names.Layer(layer) + query, nil
	case strings.Contains(layer, "://"), strings.HasPrefix(layer, "."), filepath.IsAbs(layer):
		return layer, nil
	}
	return "", fmt.Errorf("%w: %q: a name has 1 to 64 of the characters A-Z, a-z, 0-9, '.', '_' and '-', and does not begin with '.' or '-'; "+
		"write a folder elsewhere as ./%s, or give an address such as s3://bucket/prefix", ErrLayer, layer,
		strings.TrimPrefix(layer, "/"))
}

// linked refuses a layer's folder that is a link, or is below one: what it leads to belongs to
// something else, and lists of the data set's objects do not have it.
func linked(dataset, layer string) error {
	for _, name := range []string{names.LayerFolder, names.Layer(layer)} {
		folder := filepath.Join(dataset, filepath.FromSlash(name)) // without a slash at its end
		if fi, err := os.Lstat(folder); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s is a link: give the address of the folder that it leads to", ErrLayer, folder)
		}
	}
	return nil
}
