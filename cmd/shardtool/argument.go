package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/reader"
)

// dataset splits DATASET[@generation] and opens the store.
func dataset(ctx context.Context, arg string) (objstore.Store, string, error) {
	if arg == "-" {
		return nil, "", usagef("a data set cannot be - (stdin or stdout): name its folder")
	}
	if err := cmp.Or(noView(arg), refusePage(arg), refuseFile(arg)); err != nil {
		return nil, "", err
	}
	addr, generation, _ := cutGeneration(arg)
	store, err := address.Open(ctx, addr, address.Options{Logger: warnings})
	if err != nil {
		return nil, "", usagef("%w", err)
	}
	if c := cacheOf(ctx); c != nil {
		store = c.Wrap(store)
	}
	return store, generation, nil
}

// wholeDataset opens the store of a data set for a command that changes it.
func wholeDataset(ctx context.Context, command, arg string) (objstore.Store, error) {
	return current(ctx, arg, command+" publishes a new generation after the current one: give the data set without @%[2]s")
}

// current opens the store of a data set, or of one to be made, and refuses a generation. refusal is
// the format of the error, with the address and the generation.
func current(ctx context.Context, arg, refusal string) (objstore.Store, error) {
	store, generation, err := dataset(ctx, arg)
	if err == nil && generation != "" {
		err = usagef(refusal, strings.TrimSuffix(arg, "@"+generation), generation)
	}
	return store, err
}

// cutGeneration splits DATASET@<16 hex>.
func cutGeneration(arg string) (addr, generation string, ok bool) {
	if i := strings.LastIndexByte(arg, '@'); i >= 0 && isGeneration(arg[i+1:]) {
		return arg[:i], arg[i+1:], true
	}
	return arg, "", false
}

func isGeneration(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// openDataset opens the data set of an argument.
func openDataset(ctx context.Context, arg string, opts reader.Options) (*reader.Dataset, error) {
	return openAt(ctx, arg, opts, "")
}

// openAt opens the generation that arg names, or else the newest one with the samples of the
// generation that a checkpoint names (tables). It warns if the two differ.
func openAt(ctx context.Context, arg string, opts reader.Options, tables string) (*reader.Dataset, error) {
	addr, view := cutView(arg)
	store, generation, err := dataset(ctx, addr)
	if err != nil {
		return nil, err
	}
	opts.View = view
	if opts.Generation = generation; generation != "" {
		ds, err := reader.Open(ctx, store, opts)
		return ds, notFound(addr, err)
	}
	ds, err := reader.OpenResumed(ctx, store, opts, tables)
	if err == nil && tables != "" && ds.Info().Tables != tables {
		warnings.Warn("continuing on another generation than the checkpoint names: it is the newest one", "dataset", store,
			"generation", ds.Info().Generation, "tables", ds.Info().Tables, "checkpoint", tables)
	}
	return ds, notFound(addr, err)
}

// refusePage refuses a page of the Hugging Face Hub in place of the address of a data set.
func refusePage(arg string) error {
	name, is := strings.CutPrefix(arg, "https://huggingface.co/datasets/")
	if name = strings.TrimSuffix(name, "/"); is && strings.Count(name, "/") < 2 {
		return usagef("%s is a page for browsers: write hf://datasets/%s", arg, name)
	}
	return nil
}

// notFound adds to the error of a data set that is not there what its name may stand for.
func notFound(arg string, err error) error {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(arg, "://") || exists(arg) {
		return err
	}
	folder, generation, _ := strings.Cut(arg, "@")
	if generation != "" && !isGeneration(generation) && exists(folder) {
		return fmt.Errorf("%s: %q is not a generation: write %s for the newest one, or %[3]s@ and the 16 digits that `shardtool inspect %[3]s` prints%w", arg, generation, folder, plain.Silent(err))
	}
	if owner, name, _ := strings.Cut(arg, "/"); owner != "" && name != "" && !strings.Contains(name, "/") && !exists(owner) {
		return fmt.Errorf("%w; a data set of the Hugging Face Hub is hf://datasets/%s", err, arg)
	}
	return err
}

// refuseFile refuses a file in place of the folder of a data set, and says what it is.
func refuseFile(arg string) error {
	info, err := os.Stat(arg)
	if err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // a missing folder has an error of its own
	}
	folder, name := filepath.Split(arg)
	folder = cmp.Or(folder, ".")
	_, err = os.Stat(filepath.Join(folder, format.ManifestName))
	switch packed := err == nil; {
	case packed && strings.HasPrefix(name, "manifest"):
		return usagef("%s is the manifest of the data set %s: name the folder", arg, folder)
	case packed:
		return usagef("%s is a file of the data set %s: name the folder", arg, folder)
	case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
		return usagef("%s is a mix, and this command takes a data set: run it on each source that the mix names; inspect, order, cat, explain, view, simulate, bench and stage take mixes", arg)
	case strings.Contains(name, format.TarSuffix):
		return usagef("%s is a tar, not a data set: `shardtool pack %[1]s OUT` packs it, and `shardtool index %[1]s --out OUT` makes a data set that leaves it in its place", arg)
	}
	if kindOf(name) == nil {
		return usagef("%s is a file, and a data set is a folder: `shardtool pack DIR OUT` makes one from a folder of files", arg)
	}
	return usagef("%s is a file, and a data set is a folder: `shardtool pack %[1]s OUT` makes one", arg)
}
