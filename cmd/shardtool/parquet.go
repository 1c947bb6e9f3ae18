package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// parquetFlags say what becomes of rows.
type parquetFlags struct {
	opt           parquet.Options
	rename, attrs []string
}

// parquetOnly are flags that choose among columns and rows.
var parquetOnly = []string{"key", "columns", "rename", "attr", "where"}

func (f *parquetFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.opt.Key, "key", "", "Parquet: the column of keys, strings or integers (default: file name and row number)")
	fl.StringSliceVar(&f.opt.Columns, "columns", nil, "Parquet: take only these columns, as a,b")
	fl.StringArrayVar(&f.rename, "rename", nil, "Parquet: call a column's field otherwise, as column=name (may be repeated)")
	fl.StringArrayVar(&f.attrs, "attr", nil, "Parquet: keep a column in the index, as attribute=column (may be repeated)")
	fl.StringArrayVar(&f.opt.Where, "where", nil, "Parquet: take rows for which this holds, as 'column>=value' (may be repeated)")
}

// options reads pairs.
func (f *parquetFlags) options() error {
	pairs := func(flag, want string, list []string) (map[string]string, error) {
		var out map[string]string
		for _, text := range list {
			a, b, ok := strings.Cut(text, "=")
			if _, twice := out[a]; !ok || a == "" || b == "" || twice {
				return nil, usagef("--%s %q: write %s, each once", flag, text, want)
			}
			if out == nil {
				out = map[string]string{}
			}
			out[a] = b
		}
		return out, nil
	}
	var err error
	if f.opt.Rename, err = pairs("rename", "column=name", f.rename); err != nil {
		return err
	}
	f.opt.Attrs, err = pairs("attr", "attribute=column", f.attrs)
	return err
}

// provenance is what the data set keeps of the options.
func (f *parquetFlags) provenance(to map[string]string) {
	list := func(name string, values []string) {
		if len(values) > 0 {
			to[name] = fmt.Sprintf("%q", values)
		}
	}
	if f.opt.Key != "" {
		to["key"] = f.opt.Key
	}
	list("columns", f.opt.Columns)
	list("rename", slices.Sorted(slices.Values(f.rename)))
	list("attr", slices.Sorted(slices.Values(f.attrs)))
	list("where", f.opt.Where)
}

// isParquet goes by the name, as all readers of Parquet do.
func isParquet(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasSuffix(lower, ".parquet") || strings.HasSuffix(lower, ".parq") || strings.HasSuffix(lower, ".pq")
}

// parquetUse says how sources of rows and the flags for them go together.
type parquetUse struct {
	flag  string // the first flag given that is for Parquet alone
	files []parquet.Input
	first string // source that is Parquet
	other string // source that is not
	why   string
}

// findParquet lists the Parquet files that sources stand for; nil when they are something else.
func findParquet(cmd *cobra.Command, srcs []string) ([]parquet.Input, error) {
	u := &parquetUse{}
	for _, flag := range parquetOnly {
		if u.flag == "" && cmd.Flags().Changed(flag) {
			u.flag = flag
		}
	}
	for _, s := range srcs {
		files, why, err := parquetFiles(cmd.Context(), s, u.flag != "")
		switch {
		case err != nil:
			return nil, err
		case files == nil:
			u.other, u.why = s, why
		default:
			u.first = s
			u.files = append(u.files, files...)
		}
	}
	switch {
	case u.files != nil && u.other != "":
		return nil, usagef("source %s is Parquet and %s is not%s: pack one kind, then the other with --append", u.first, u.other, u.why)
	case u.files == nil && u.flag != "":
		return nil, usagef("--%s is for rows of Parquet files, and source %s has none%s", u.flag, u.other, u.why)
	case u.files == nil:
		return nil, nil
	}
	return u.files, onlyForFiles(cmd, "Parquet", func(string) string { return "--columns and --where choose, and reading shuffles" })
}

// parquetFiles are the files of one source, nil where it is no Parquet; why says what else is in a folder.
func parquetFiles(ctx context.Context, src string, wanted bool) (files []parquet.Input, why string, err error) {
	if strings.Contains(src, "://") {
		files, err = parquetObjects(ctx, src)
		return files, "", err
	}
	info, err := os.Stat(src)
	switch {
	case err == nil && info.IsDir():
		return parquetFolder(ctx, src, wanted)
	case err == nil && isParquet(src):
		in, err := parquetFile(src)
		return []parquet.Input{in}, "", err
	case err == nil || !strings.ContainsAny(src, "*?[{"):
		if isParquet(src) {
			return nil, "", &exitError{exitNotFound, fmt.Errorf("source %s: %w", src, fs.ErrNotExist)}
		}
		return nil, "", nil
	case !isParquet(src):
		return nil, "", nil
	}
	names, err := doublestar.FilepathGlob(src)
	if err != nil {
		return nil, "", usagef("source %q: not a glob; write one such as 'data/*.parquet'", src)
	}
	slices.Sort(names)
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		in, err := parquetFile(name)
		if err != nil {
			return nil, "", err
		}
		files = append(files, in)
	}
	if files == nil {
		return nil, "", &exitError{exitNotFound, fmt.Errorf("source %s: no file matches: %w", src, fs.ErrNotExist)}
	}
	return files, "", nil
}

// parquetFile follows a link: caches of downloads are full of them, and a store does not follow those that lead out of it.
func parquetFile(name string) (parquet.Input, error) {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return parquet.Input{}, err
	}
	store, err := local.New(filepath.Dir(target), local.Options{})
	return parquet.Input{Store: store, Name: filepath.Base(target), Path: filepath.ToSlash(name)}, err
}

// parquetFolder takes a folder all of whose files are Parquet, but for names that begin with a dot or an underscore. Without a
// flag for Parquet the first other file ends the search: folders may be large.
func parquetFolder(ctx context.Context, dir string, wanted bool) (files []parquet.Input, why string, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		hidden := name != dir && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
		switch {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden || d.IsDir():
			return nil
		case !isParquet(d.Name()):
			why = fmt.Sprintf(" (it holds %s)", name)
			files = nil
			return fs.SkipAll
		}
		in, err := parquetFile(name)
		files = append(files, in)
		return err
	})
	if err != nil && !wanted { // whoever reads the folder as files will say what is wrong with it
		return nil, "", nil
	}
	if why != "" && wanted {
		why += fmt.Sprintf("; where it holds Parquet too, name that: '%s'", filepath.Join(dir, "**", "*.parquet"))
	}
	return files, why, err
}

// parquetObjects lists objects of a store: one, those of a glob, or all below a prefix. What follows a ? are options of the
// address, never part of a glob.
func parquetObjects(ctx context.Context, src string) (files []parquet.Input, err error) {
	place, query, _ := strings.Cut(src, "?")
	if query != "" {
		query = "?" + query
	}
	scheme, rest, _ := strings.Cut(place, "://")
	host, name, _ := strings.Cut(rest, "/")
	glob := strings.ContainsAny(name, "*[{")
	dir, pattern := name, "**"
	if glob || isParquet(name) {
		end := len(name)
		if glob {
			end = strings.IndexAny(name, "*[{")
		}
		end = strings.LastIndexByte(name[:end], '/') + 1
		dir, pattern = name[:end], name[end:]
	}
	base := scheme + "://" + host
	if dir = strings.TrimSuffix(dir, "/"); dir != "" {
		base += "/" + dir
	}
	store, err := address.Open(ctx, base+query, address.Options{Logger: warnings})
	if err != nil {
		return nil, usagef("%w", err)
	}
	shown := strings.TrimSuffix(store.String(), "/") + "/"
	input := func(name string) parquet.Input { return parquet.Input{Store: store, Name: name, Path: shown + name} }
	if !glob && isParquet(name) {
		return []parquet.Input{input(pattern)}, nil
	}
	if !doublestar.ValidatePattern(pattern) {
		return nil, usagef("source %s%s: not a glob; write one such as s3://bucket/prefix/*.parquet", shown, pattern)
	}
	// The part of the pattern before its first meta character is common to all names.
	prefix := pattern
	if i := strings.IndexAny(pattern, "*[{\\"); i >= 0 {
		prefix = pattern[:i]
	}
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if match, _ := doublestar.Match(pattern, info.Name); match && isParquet(info.Name) {
			files = append(files, input(info.Name))
		}
	}
	if files == nil {
		return nil, &exitError{exitNotFound, fmt.Errorf("source %s%s: no Parquet file there: %w", shown, pattern, fs.ErrNotExist)}
	}
	return files, nil
}

// checkParquet refuses a target inside a folder of sources: a later pack would take the shards' folder for a source.
func checkParquet(srcs []string, target string) error {
	var folders []string
	for _, s := range srcs {
		if info, err := os.Stat(s); err == nil && info.IsDir() {
			folders = append(folders, s)
		}
	}
	if folders == nil || strings.Contains(target, "://") {
		return nil
	}
	return checkSources(folders, target)
}

func openParquet(ctx context.Context, files []parquet.Input, f *packFlags, stderr io.Writer) (writer.Source, error) {
	src, err := parquet.New(ctx, files, f.parquet.opt)
	if errors.Is(err, parquet.ErrOption) {
		text := strings.TrimPrefix(err.Error(), "parquet: ")
		return nil, usagef("%s", strings.Replace(text, parquet.ErrOption.Error()+" ", "--", 1))
	}
	if err != nil {
		return nil, err
	}
	rows, size := src.Total()
	if !f.quiet {
		fmt.Fprintf(stderr, "found %s in %s, %s of columns\n", plural(rows, "row"), plural(len(files), "Parquet file"), bytesText(uint64(size)))
	}
	if rows == 0 {
		src.Close()
		return nil, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack", writer.ErrEmpty, plural(len(files), "Parquet file"))}
	}
	return src, nil
}
