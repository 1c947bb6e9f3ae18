package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/filecolumns"
	"github.com/shardtool/shardtool/cmd/shardtool/internal/zips"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// openRows opens the source, and adds the files that its rows name.
func (all *found) openRows(ctx context.Context, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	files, r := &f.rows.files, &f.rows
	if len(files.columns) == 0 {
		return all.kind.open(ctx, all, f, stderr)
	}
	columns := slices.Clone(files.columns)
	roots, err := all.roots(ctx, files.root)
	if err != nil {
		return nil, 0, err
	}
	taken := r.columns
	for i := range columns { // read, but no fields unless chosen
		if name := columns[i].Name; taken != nil && !slices.Contains(taken, name) {
			columns[i].Drop = true
			if !slices.Contains(r.columns, name) {
				r.columns = append(slices.Clip(r.columns), name)
			}
		}
	}
	src, _, err := all.kind.open(ctx, all, f, stderr)
	if err != nil {
		return nil, 0, err
	}
	return filecolumns.New(src, columns, roots), 0, nil
}

// roots returns the folders of the files of rows: the one of --file-root, or their own.
func (all *found) roots(ctx context.Context, given string) (func(string) (*filecolumns.Root, error), error) {
	if given != "" {
		root, err := openRoot(ctx, given)
		return func(string) (*filecolumns.Root, error) { return root, nil }, err
	}
	inputs := map[string]source.Input{}
	for _, in := range all.files {
		if in.Once() || slices.Contains(all.srcs, stdinName) {
			return nil, usagef("--file-column: rows of standard input have no folder: name the folder of the files with --file-root")
		}
		inputs[in.Path] = in
		if in.Path == "" {
			inputs[in.Name] = in
		}
	}
	var mu sync.Mutex
	open := map[string]*filecolumns.Root{}
	return func(file string) (*filecolumns.Root, error) {
		mu.Lock()
		defer mu.Unlock()
		if open[file] != nil {
			return open[file], nil
		}
		in, ok := inputs[file]
		if !ok {
			return nil, fmt.Errorf("the row is of %q, which is not a source", file)
		}
		var root *filecolumns.Root
		_, zipped := in.Store.(*zips.Store)
		if at := filepath.FromSlash(in.Path); zipped || strings.Contains(in.Path, "://") {
			dir := ""
			if d := path.Dir(in.Name); d != "." {
				dir = d + "/"
			}
			shown := in.Path[:strings.LastIndexByte(in.Path, '/')+1]
			root = &filecolumns.Root{Store: in.Store, Dir: dir, Shown: strings.TrimSuffix(shown, "/"), Prefixes: []string{shown}, Archive: zipped}
		} else {
			var err error
			if root, err = localRoot(filepath.Dir(at)); err != nil {
				return nil, err
			}
		}
		if len(open) < 4096 { // files of rows are read in order
			open[file] = root
		}
		return root, nil
	}, nil
}

func localRoot(dir string) (*filecolumns.Root, error) {
	store, err := local.New(dir, local.Options{})
	if err != nil {
		return nil, err
	}
	root := &filecolumns.Root{Store: store, Shown: filepath.ToSlash(dir)}
	if full, err := filepath.Abs(dir); err == nil {
		root.Prefixes = []string{strings.TrimSuffix(filepath.ToSlash(full), "/") + "/"}
	}
	return root, nil
}

// openRoot opens --file-root.
func openRoot(ctx context.Context, given string) (*filecolumns.Root, error) {
	if place, _, _ := strings.Cut(given, "?"); strings.Contains(place, "://") {
		store, err := address.Open(ctx, given, address.Options{Logger: warnings})
		if err != nil {
			return nil, usagef("--file-root: %w", err)
		}
		shown := strings.TrimSuffix(store.String(), "/")
		return &filecolumns.Root{Store: store, Shown: shown, Prefixes: []string{shown + "/"}}, nil
	}
	if info, err := os.Stat(given); err != nil || !info.IsDir() {
		return nil, usagef("--file-root %s: give a folder, or the address of one", given)
	}
	return localRoot(given)
}
