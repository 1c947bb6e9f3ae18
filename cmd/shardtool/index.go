package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

type indexFlags struct {
	pack packFlags // its modes, and how it prints
	out  string
}

func newIndex() *cobra.Command {
	var f indexFlags
	cmd := &cobra.Command{
		Use:   "index SRC…",
		Short: "Make a data set of tars that stay where they are",
		Long: `Index plain tars that another tool wrote, WebDataset's say, where they lie, so that they stream, shuffle and resume like any
data set. SRC is a folder or store of .tar files, or some of them by names, globs and braces. The archives are read once
and not changed. The index of x.tar lies beside it as x.tar.<16 hex>.shidx, named by its content and never replaced, and
over all archives lies the manifest.

The data set lies in the folder of the archives, or in --out, a folder above them. The archives must stay as they are:
bytes that change later are found when they are read. Samples are as pack has them: members that share a name up to the
first dot, one behind the other. Samples torn apart, links, cut archives are errors. Compressed archives cannot be
indexed: pack them.

Exit codes:
` + exitCodes,
		Example: `  shardtool index /data/wds
  shardtool index '/data/wds/train-{000000..000099}.tar'
  shardtool index s3://bucket/wds && shardtool cat s3://bucket/wds --shuffle --limit 3 | tar -t`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runIndex(cmd, args, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "", "the folder or store of the data set: that of the archives, or above them (default: theirs)")
	f.pack.addBlockSize(cmd)
	fl.StringVar(&f.pack.duplicates, "duplicate-keys", "fail", "a key that comes again in another archive: fail or keep")
	fl.IntVar(&f.pack.opt.Workers, "workers", 0, "read so many archives at once (0: the CPUs this process may use)")
	fl.StringVar(&f.pack.opt.TempDir, "temp-dir", "", "where sorting spills to (default: the system's)")
	fl.BoolVar(&f.pack.overwrite, "overwrite", false, "publish a new generation in place of what is there, with new indexes of archives that changed")
	fl.BoolVar(&f.pack.append, "append", false, "publish a new generation: what is there, then these archives")
	fl.BoolVar(&f.pack.json, "json", false, "print the result as JSON")
	fl.BoolVar(&f.pack.quiet, "quiet", false, "no progress")
	return cmd
}

// options checks the flags.
func (f *indexFlags) options() error {
	o := &f.pack.opt
	if err := f.pack.checkBlockSize(); err != nil {
		return err
	}
	o.ShardSize = max(256<<20, o.BlockSize) // shards are as large as the archives
	switch f.pack.duplicates {
	case "fail":
	case "keep":
		o.KeepDuplicates = true
	default:
		return usagef("--duplicate-keys %q: use fail or keep", f.pack.duplicates)
	}
	switch {
	case f.pack.overwrite && f.pack.append:
		return usagef("--overwrite and --append exclude each other")
	case f.pack.overwrite:
		o.Mode = writer.ModeOverwrite
	case f.pack.append:
		o.Mode = writer.ModeAppend
	}
	return checkRun(minMemory, o.Workers)
}

func runIndex(cmd *cobra.Command, args []string, f *indexFlags) error {
	if err := f.options(); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	tars, err := findTars(ctx, args, f.out)
	if err != nil {
		return err
	}
	f.pack.known(stderr, "%s, %s", plural(len(tars.names), "archive"), bytesText(uint64(tars.size)))
	sweep(ctx, tars.store)
	limitMemory(256<<20, 0)
	begin := time.Now()
	bar := newProgress(stderr, "indexing", tars.size, f.pack.quiet)
	f.pack.opt.Progress = func(p writer.Progress) {
		bar.set(p.StoredBytes, fmt.Sprintf("%s, %s", plural(p.Samples, "sample"), plural(p.Shards, "archive")))
	}
	f.pack.opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	res, err := writer.Index(ctx, tars.store, tars.names, f.pack.opt)
	bar.end()
	if err != nil {
		if stopped(ctx) {
			return stoppedError(ctx, err, "nothing was published; the same command begins again")
		}
		return packError(ctx, err)
	}
	return printResult(cmd, f.pack.json, tars.store, res, time.Since(begin))
}

// tars are archives below one place.
type tars struct {
	store objstore.Store
	names []string
	size  int64
}

// findTars lists the archives that sources stand for, and where the data set is to lie.
func findTars(ctx context.Context, srcs []string, out string) (*tars, error) {
	var all []string // addresses of archives, of folders first
	base := out
	for _, src := range srcs {
		dir, names, err := tarsOf(ctx, src)
		if err != nil {
			return nil, err
		}
		if base == "" {
			base = dir
		}
		for _, name := range names {
			all = append(all, join(dir, name))
		}
	}
	store, generation, err := dataset(ctx, base)
	if err != nil {
		return nil, err
	}
	if generation != "" {
		return nil, usagef("%s: give the folder of the archives, not a generation", base)
	}
	t := &tars{store: store}
	for _, addr := range all {
		name, ok := below(base, addr)
		if !ok {
			return nil, usagef("%s does not lie below %s: an index names archives of its own folder; move them there, or pack them", addr, base)
		}
		info, err := store.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotFound, err}
		}
		if err != nil {
			return nil, err
		}
		t.size += info.Size
		t.names = append(t.names, name)
	}
	return t, nil
}

// tarsOf lists the archives of one source: their folder or store, and their names below it.
func tarsOf(ctx context.Context, src string) (dir string, names []string, err error) {
	if strings.Contains(src, "://") {
		return tarsOfStore(ctx, src)
	}
	info, err := os.Stat(src)
	switch {
	case err == nil && info.IsDir():
		store, _, err := dataset(ctx, src)
		if err != nil {
			return "", nil, err
		}
		names, err := listTars(ctx, store, "", "**", src)
		return src, names, err
	case err == nil:
		names = []string{src}
	case strings.ContainsAny(src, "*?[{"):
		if names, err = source.Expand(src); errors.Is(err, fs.ErrNotExist) {
			return "", nil, &exitError{exitNotFound, err}
		}
		if err != nil {
			return "", nil, usagef("%w", err)
		}
	default:
		return "", nil, &exitError{exitNotFound, fmt.Errorf("source %s: %w", src, fs.ErrNotExist)}
	}
	dir = filepath.Dir(names[0])
	for _, name := range names {
		if !strings.HasSuffix(name, format.TarSuffix) {
			return "", nil, notPlain(name)
		}
		for rel, ok := below(dir, name); !ok || rel == ""; rel, ok = below(dir, name) {
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
	}
	for i, name := range names {
		names[i], _ = below(dir, name)
	}
	return dir, names, nil
}

func notPlain(name string) error {
	return usagef("source %s is no plain tar: compressed archives cannot be indexed where they are; `shardtool pack` makes shards of them", name)
}

// tarsOfStore lists the archives of a store: one, those of a glob, or all below a prefix.
func tarsOfStore(ctx context.Context, src string) (dir string, names []string, err error) {
	place, query, _ := strings.Cut(src, "?")
	if query != "" {
		query = "?" + query
	}
	scheme, rest, _ := strings.Cut(place, "://")
	host, name, _ := strings.Cut(rest, "/")
	pattern := "**"
	glob := strings.ContainsAny(name, "*[{")
	if glob || kindOf(name) == &tarKind {
		end := len(name)
		if glob {
			end = strings.IndexAny(name, "*[{")
		}
		end = strings.LastIndexByte(name[:end], '/') + 1
		name, pattern = name[:end], name[end:]
	}
	dir = strings.TrimSuffix(scheme+"://"+host+"/"+name, "/") + query
	store, _, err := dataset(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	words, err := source.Braces(pattern)
	if err != nil {
		return "", nil, usagef("%w", err)
	}
	for _, word := range words {
		if !strings.ContainsAny(word, "*[?\\") {
			if !strings.HasSuffix(word, format.TarSuffix) {
				return "", nil, notPlain(word)
			}
			names = append(names, word)
			continue
		}
		more, err := listTars(ctx, store, word[:strings.IndexAny(word, "*[?\\")], word, src)
		if err != nil {
			return "", nil, err
		}
		names = append(names, more...)
	}
	return dir, names, nil
}

// listTars are the plain tars of a store that match, in order.
func listTars(ctx context.Context, store objstore.Store, prefix, pattern, src string) (names []string, err error) {
	compressed := ""
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		match, err := doublestar.Match(pattern, info.Name)
		if err != nil {
			return nil, usagef("source %s: not a glob; write one such as s3://bucket/prefix/*.tar", src)
		}
		switch {
		case !match || strings.HasPrefix(path.Base(info.Name), "."):
		case strings.HasSuffix(info.Name, format.TarSuffix):
			names = append(names, info.Name)
		case kindOf(info.Name) == &tarKind:
			compressed = info.Name
		}
	}
	if names == nil && compressed != "" {
		return nil, notPlain(compressed)
	}
	if names == nil {
		return nil, &exitError{exitNotFound, fmt.Errorf("source %s: no .tar there: %w", src, fs.ErrNotExist)}
	}
	slices.Sort(names)
	return names, nil
}

// join is the address of an object of a folder or store.
func join(dir, name string) string {
	if !strings.Contains(dir, "://") {
		return filepath.Join(dir, filepath.FromSlash(name))
	}
	place, query, ok := strings.Cut(dir, "?")
	if ok {
		query = "?" + query
	}
	return strings.TrimSuffix(place, "/") + "/" + name + query
}

// below is the name of an object below a folder or store.
func below(dir, addr string) (string, bool) {
	remote := strings.Contains(dir, "://")
	if remote != strings.Contains(addr, "://") {
		return "", false
	}
	if remote {
		d, _, _ := strings.Cut(dir, "?")
		a, _, _ := strings.Cut(addr, "?")
		return strings.CutPrefix(a, strings.TrimSuffix(d, "/")+"/")
	}
	d, err := filepath.Abs(dir)
	a, err2 := filepath.Abs(addr)
	if err != nil || err2 != nil {
		return "", false
	}
	rel, err := filepath.Rel(d, a)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}
