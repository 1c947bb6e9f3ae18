package open

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// CutView splits DATASET#VIEW. The view of DATASET is empty.
func CutView(name string) (whole, view string) {
	i := strings.LastIndexByte(name, '#')
	if i < 0 {
		return name, ""
	}
	if !strings.Contains(name, "://") {
		if _, err := os.Stat(name); err == nil {
			return name, ""
		}
	}
	if view := name[i+1:]; names.IsViewID(view) || viewfile.CheckLabel(view) == nil {
		return name[:i], view
	}
	return name, ""
}

// CutGeneration splits DATASET@GENERATION, and a layer's name or address likewise. ok reports
// whether the name has a generation.
func CutGeneration(name string) (addr, generation string, ok bool) {
	if i := strings.LastIndexByte(name, '@'); i >= 0 && isGeneration(name[i+1:]) {
		return name[:i], name[i+1:], true
	}
	return name, "", false
}

func isGeneration(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// Whole refuses the name of a view, for programs that read or change whole data sets.
func Whole(name string) error {
	if whole, view := CutView(name); view != "" {
		return wrongf("%s names the view %s: here, give the whole data set, %s", objstore.NewAddress(name), view,
			objstore.NewAddress(whole))
	}
	return nil
}

// refusePage refuses a page of the Hugging Face Hub in place of the address of a data set.
func refusePage(name string) error {
	set, is := strings.CutPrefix(objstore.NewAddress(name).String(), "https://huggingface.co/datasets/")
	if set = strings.TrimSuffix(set, "/"); is && strings.Count(set, "/") < 2 {
		return wrongf("%s is a page for browsers: write hf://datasets/%s", objstore.NewAddress(name), set)
	}
	return nil
}

// notFound adds to the error of a data set that is not there what its name may stand for.
func notFound(name string, err error) error {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(name, "://") || exists(name) {
		return err
	}
	folder, generation, _ := strings.Cut(name, "@")
	if generation != "" && !isGeneration(generation) && exists(folder) {
		return fmt.Errorf("%s: %q is not a generation: write %s for the newest one, or %[3]s@ and the 16 digits that `shardtool inspect %[3]s` prints%w", name, generation, folder, plain.Silent(err))
	}
	if owner, set, _ := strings.Cut(name, "/"); owner != "" && set != "" && !strings.Contains(set, "/") &&
		!exists(owner) {
		if strings.Contains(owner, ":") {
			return fmt.Errorf("%w; a data set of a web server is http://%s", err, name)
		}
		return fmt.Errorf("%w; a data set of the Hugging Face Hub is hf://datasets/%s", err, name)
	}
	return err
}

// refuseFile refuses a file in place of the folder of a data set, and says what it is.
func refuseFile(name string) error {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // a missing folder has an error of its own
	}
	folder, file := filepath.Split(name)
	folder = cmp.Or(folder, ".")
	_, err = os.Stat(filepath.Join(folder, format.ManifestName))
	switch packed := err == nil; {
	case packed && strings.HasPrefix(file, "manifest"):
		return wrongf("%s is the manifest of the data set %s: name the folder", name, folder)
	case packed:
		return wrongf("%s is a file of the data set %s: name the folder", name, folder)
	case slices.Contains(mixEndings, filepath.Ext(file)):
		return wrongf("%s is a mix, and this command takes a data set: run it on each source that the mix names; inspect, order, cat, explain, view, simulate, bench and stage take mixes", name)
	case strings.Contains(file, format.TarSuffix):
		return wrongf("%s is a tar, not a data set: `shardtool pack %[1]s OUT` packs it, and `shardtool index %[1]s --out %[2]s` makes a data set that leaves it in its place", name, folder)
	}
	if of := recognise.OfName(file); of == nil || of.Help != "" {
		return wrongf("%s is a file, and a data set is a folder: `shardtool pack DIR OUT` makes one from a folder of files", name)
	}
	return wrongf("%s is a file, and a data set is a folder: `shardtool pack %[1]s OUT` makes one", name)
}
