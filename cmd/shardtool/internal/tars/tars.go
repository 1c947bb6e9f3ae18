// Package tars finds the plain tar archives that addresses stand for, so that writer.Index can
// index them where they are.
//
//	addresses ──▶ archives of a folder, a glob or a store ──▶ the folder above all of them ──▶ names below it
package tars

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

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/patterns"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
)

// Errors of Find.
var (
	// ErrAddress: an address is not a glob, or is outside the folder of the data set.
	ErrAddress = errors.New("wrong address")
	// ErrNotPlain: an address stands for something other than plain tars.
	ErrNotPlain = errors.New("not a plain tar")
)

func addressf(msg string, args ...any) error {
	return fmt.Errorf("%w%w", fmt.Errorf(msg, args...), plain.Silent(ErrAddress))
}

// Archives are plain tars below one folder or prefix.
type Archives struct {
	Store objstore.Store
	// Names are the names in Store, in the order of the addresses.
	Names []string
	// Size is the sum of their sizes.
	Size int64
	// Tally accounts for all names that were listed.
	Tally tally.Tally
}

// Open opens the folder or store of an address.
type Open func(ctx context.Context, addr string) (objstore.Store, error)

// Find lists the archives that addresses stand for. An address is a folder or a prefix of a store,
// which stands for all .tar files below it, or names files, by globs and braces too. The archives
// must be below out; with an empty out below the folder of the first address. Archives and
// addresses that do not exist are fs.ErrNotExist; an address that cannot be indexed is an
// ErrAddress. Find calls check with the store of the archives before it lists one, and returns its
// error.
func Find(ctx context.Context, open Open, addrs []string, out string,
	check func(objstore.Store) error) (*Archives, error) {
	local, err := address.Locals(append([]string{out}, addrs...))
	if err != nil {
		return nil, addressf("%w", err)
	}
	out, addrs = local[0], local[1:]
	var all []string // addresses of archives
	base, found := "", &Archives{}
	begin := func(dir string) (err error) {
		if base != "" {
			return nil
		}
		base = dir
		if found.Store, err = open(ctx, dir); err != nil {
			return err
		}
		return check(found.Store)
	}
	if out != "" {
		if err := begin(out); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		dir, names, err := open.list(ctx, addr, begin, &found.Tally)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, join(dir, name))
		}
	}
	for _, addr := range all {
		name, ok := below(base, addr)
		if !ok {
			return nil, addressf("%s does not lie below %s: an index names archives of its own folder; move them there, or pack them", addr, base)
		}
		info, err := found.Store.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		found.Size += info.Size
		found.Names = append(found.Names, name)
	}
	return found, nil
}

// list lists the archives of one address: their folder or store, and their names below it. It calls
// begin with that folder or store before it lists the folder or asks the store.
func (open Open) list(ctx context.Context, addr string, begin func(dir string) error,
	count *tally.Tally) (dir string, names []string, err error) {
	if strings.Contains(addr, "://") {
		return open.listStore(ctx, addr, begin, count)
	}
	info, err := os.Stat(addr)
	switch {
	case err == nil && info.IsDir():
		if err := begin(addr); err != nil {
			return "", nil, err
		}
		store, err := open(ctx, addr)
		if err != nil {
			return "", nil, err
		}
		names, err := match(ctx, store, "", "**", addr, count)
		return addr, names, err
	case err == nil:
		names = []string{addr}
		count.Listed++
	case strings.ContainsAny(addr, "*?[{"):
		var left *tally.Tally
		if names, left, err = patterns.Expand(addr); err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = addressf("%w", err)
		}
		if err != nil {
			return "", nil, err
		}
		count.Add(left)
	default:
		return "", nil, fmt.Errorf("source %s: there is no such file or folder: check the path%w", addr,
			plain.Silent(fs.ErrNotExist))
	}
	if dir, names, err = commonFolder(names); err == nil {
		err = begin(dir)
	}
	return dir, names, err
}

// commonFolder returns the deepest folder that all files are below, and their names below it.
func commonFolder(files []string) (dir string, names []string, err error) {
	dir = filepath.Dir(files[0])
	for _, file := range files {
		if !strings.HasSuffix(file, format.TarSuffix) {
			return "", nil, notPlain(file)
		}
		for _, ok := below(dir, file); !ok; _, ok = below(dir, file) {
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
	}
	for _, file := range files {
		name, _ := below(dir, file)
		names = append(names, name)
	}
	return dir, names, nil
}

func notPlain(name string) error {
	return fmt.Errorf("source %s is not a plain tar: compressed archives cannot be indexed where they are%w", name,
		plain.Silent(ErrNotPlain))
}

// listStore lists the archives of an address of a store: one, the matches of a glob, or all below a
// prefix.
func (open Open) listStore(ctx context.Context, addr string, begin func(dir string) error,
	count *tally.Tally) (dir string, names []string, err error) {
	dir, pattern, _ := patterns.CutAddress(addr,
		func(name string) bool { return recognise.OfName(name) == recognise.Tar })
	if err := begin(dir); err != nil {
		return "", nil, err
	}
	store, err := open(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	words, err := patterns.Braces(cmp.Or(pattern, "**"))
	if err != nil {
		return "", nil, addressf("%w", err)
	}
	for _, word := range words {
		meta := strings.IndexAny(word, "*[?\\")
		if meta < 0 {
			if !strings.HasSuffix(word, format.TarSuffix) {
				return "", nil, notPlain(word)
			}
			names = append(names, word)
			count.Listed++
			continue
		}
		more, err := match(ctx, store, word[:meta], word, addr, count)
		if err != nil {
			return "", nil, err
		}
		names = append(names, more...)
	}
	return dir, names, nil
}

// match lists the plain tars of a store whose names match a pattern, in order. prefix is common to
// all of them.
func match(ctx context.Context, store objstore.Store, prefix, pattern, addr string,
	count *tally.Tally) (names []string, err error) {
	compressed := ""
	for info, err := range objstore.ListAll(ctx, store, prefix) {
		if err != nil {
			return nil, err
		}
		matches, err := doublestar.Match(pattern, info.Name)
		if err != nil {
			return nil, addressf("source %s: not a glob; write one such as s3://bucket/prefix/*.tar", addr)
		}
		if !matches || strings.HasSuffix(info.Name, "/") {
			continue
		}
		rule := tally.Side
		switch {
		case globs.Fork(info.Name):
			rule = tally.Fork
		case globs.Passes(pattern, info.Name):
			rule = tally.Hidden
		case strings.HasSuffix(info.Name, format.TarSuffix):
			if err := tally.UnsafeError(info.Name); err != nil {
				return nil, fmt.Errorf("source %s: %w", addr, err)
			}
			names, rule = append(names, info.Name), ""
		case recognise.OfName(info.Name) == recognise.Tar:
			compressed = info.Name
		}
		if count.Listed++; rule != "" {
			count.Leave(rule, info.Name)
		}
	}
	if names == nil && compressed != "" {
		return nil, notPlain(compressed)
	}
	if names == nil {
		return nil, fmt.Errorf("source %s: it holds no .tar files; `shardtool pack` packs a folder of files%w", addr,
			plain.Silent(fs.ErrNotExist))
	}
	slices.Sort(names)
	return names, nil
}

// join returns the address of an object of a folder or store.
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

// below returns the name that the object at an address has in a folder or store, and whether it is
// below it.
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
