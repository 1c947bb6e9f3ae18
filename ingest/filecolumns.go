package ingest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/ingest/internal/filecolumns"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/input/zips"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// openRows opens the source, and adds the files that its rows name.
func (f *Found) openRows(ctx context.Context) (writer.Source, int64, error) {
	r := &f.Rows
	if len(r.Files) == 0 {
		return f.kind.open(ctx, f)
	}
	roots, err := f.roots(ctx, r.FileRoot)
	if err != nil {
		return nil, 0, err
	}
	taken := r.Columns
	var columns []filecolumns.Column
	for _, of := range r.Files {
		base := cmp.Or(r.Rename[of.Column], of.Column)
		c := filecolumns.Column{Field: of.Field, Name: of.Column, From: []string{base, base + ".txt"}}
		if taken != nil && !slices.Contains(taken, c.Name) { // read, but no field unless chosen
			c.Drop = true
			if !slices.Contains(r.Columns, c.Name) {
				r.Columns = append(slices.Clip(r.Columns), c.Name)
			}
		}
		columns = append(columns, c)
	}
	if err := f.leaveUnnamed(ctx, roots); err != nil {
		return nil, 0, err
	}
	src, _, err := f.kind.open(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	return filecolumns.New(src, columns, roots), 0, nil
}

// leaveUnnamed counts the files in the folders of the rows that no row names. It reads the paths of
// all rows, so that a part and a run that continues have the counts of the whole.
func (f *Found) leaveUnnamed(ctx context.Context, roots func(string) (*filecolumns.Root, error)) error {
	if len(f.others) == 0 {
		return nil
	}
	only := *f
	only.names = tally.Tally{}
	only.Note, only.Rows.Key, only.Rows.Rename, only.Rows.Attrs, only.Rows.Columns, only.others = nil, "", nil, nil,
		nil, nil
	var columns []filecolumns.Column
	for _, of := range f.Rows.Files {
		columns = append(columns, filecolumns.Column{Field: of.Field, Name: of.Column,
			From: []string{of.Column, of.Column + ".txt"}})
		if !slices.Contains(only.Rows.Columns, of.Column) {
			only.Rows.Columns = append(only.Rows.Columns, of.Column)
		}
	}
	src, _, err := f.kind.open(ctx, &only)
	if err != nil {
		return nil //nolint:nilerr // opening all columns gives the error
	}
	defer src.Close()
	var last *filecolumns.Root
	below := ""
	err = filecolumns.Named(ctx, src, columns, roots, func(root *filecolumns.Root, object string) {
		if root != last {
			last, below = root, placeOf(root.Store.String())
		}
		delete(f.others, below+object)
	})
	for _, name := range f.others {
		f.names.Leave(tally.Unnamed, name)
	}
	f.others = nil
	return err
}

// checkFileColumns refuses columns of files that cannot be.
func (f *Found) checkFileColumns() error {
	for i, of := range f.Rows.Files {
		if of.Column == "" || of.Field == "" || format.CheckField(of.Field) != nil ||
			slices.ContainsFunc(f.Rows.Files[:i], func(c FileColumn) bool {
				return c.Field == of.Field
			}) {
			return wrongf("%s %q: write FIELD=COLUMN, such as image=file_name, each field once", f.opt("file-column"),
				of.Field+"="+of.Column)
		}
		if of.Column == f.Rows.Key && !slices.Contains(f.Rows.Columns, of.Column) {
			return wrongf("%s %s=%s: the column %s has the keys and becomes no field: name it with %s too",
				f.opt("file-column"), of.Field, of.Column, of.Column, f.opt("columns"))
		}
	}
	if f.Rows.FileRoot != "" && len(f.Rows.Files) == 0 {
		return wrongf("%s goes with %s: it is the folder of its paths", f.opt("file-root"), f.opt("file-column"))
	}
	return nil
}

// roots returns the folders of the files of rows: the one given, or their own.
func (f *Found) roots(ctx context.Context, given string) (func(string) (*filecolumns.Root, error), error) {
	if given != "" {
		root, err := f.openRoot(ctx, given)
		return func(string) (*filecolumns.Root, error) { return root, nil }, err
	}
	inputs := map[string]source.Input{}
	for _, in := range f.files {
		if in.Once() || slices.ContainsFunc(f.srcs,
			func(src objstore.Address) bool { return src.Secret() == stdinName }) {
			return nil, wrongf("%s: rows of standard input have no folder: name the folder of the files with %s",
				f.opt("file-column"), f.opt("file-root"))
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
			root = &filecolumns.Root{Store: in.Store, Dir: dir, Shown: strings.TrimSuffix(shown, "/"),
				Prefixes: []string{shown}, Archive: zipped}
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

// openRoot opens the folder that is given.
func (f *Found) openRoot(ctx context.Context, given string) (*filecolumns.Root, error) {
	given, err := address.Local(given)
	if err != nil {
		return nil, wrongf("%s: %w", f.opt("file-root"), err)
	}
	if place, _, _ := strings.Cut(given, "?"); strings.Contains(place, "://") {
		store, err := address.Open(ctx, given, address.Options{Logger: f.Log})
		if err != nil {
			return nil, wrongf("%s: %w", f.opt("file-root"), err)
		}
		shown := strings.TrimSuffix(store.String(), "/")
		return &filecolumns.Root{Store: store, Shown: shown, Prefixes: []string{shown + "/"}}, nil
	}
	if info, err := os.Stat(given); err != nil || !info.IsDir() {
		return nil, wrongf("%s %s: give a folder, or the address of one", f.opt("file-root"), given)
	}
	return localRoot(given)
}
