package ingest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/patterns"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer/source"
)

// diskFolder is a folder of this machine.
type diskFolder string

func (d diskFolder) root() string { return string(d) }

// Input implements recognise.Place. Unless a link is on the way, the store is the whole folder, so
// that the index of a shard may lie in a folder above it.
func (d diskFolder) Input(name string) (source.Input, error) {
	in, err := localInput(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil || path.Base(name) == name {
		return in, err
	}
	root, err := filepath.EvalSymlinks(string(d))
	if err != nil {
		return in, err
	}
	if filepath.Join(in.Store.String(), in.Name) == filepath.Join(root, filepath.FromSlash(name)) {
		in.Name = name
		in.Store, err = local.New(root, local.Options{})
	}
	return in, err
}

// Names implements recognise.Place. It reads folders 4,096 names at a time, because they may be
// large.
func (d diskFolder) Names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { d.list(ctx, ".", yield) }
}

func (d diskFolder) list(ctx context.Context, dir string, yield func(string, error) bool) bool {
	h, err := os.Open(filepath.Join(string(d), dir))
	if err != nil {
		return yield("", err)
	}
	defer h.Close()
	var below []string
	for {
		entries, err := h.ReadDir(4096)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			apart := strings.ContainsAny(e.Name()[:1], "._")
			switch {
			case !e.IsDir():
				if !yield(name, nil) {
					return false
				}
			case apart && !yield(name+"/", nil):
				return false
			case e.Name()[0] != '.':
				below = append(below, name)
			}
		}
		if err = cmp.Or(ctx.Err(), err); err == io.EOF {
			break
		}
		if err != nil {
			return yield("", err)
		}
	}
	h.Close()
	for _, name := range below {
		if !d.list(ctx, name, yield) {
			return false
		}
	}
	return true
}

// prefix is a prefix of a store.
type prefix struct {
	store objstore.Store
	shown string
}

func (p prefix) root() string { return strings.TrimSuffix(p.shown, "/") }

// placeOf returns the path or address of a folder, the same for all spellings of a path, with a
// slash.
func placeOf(root string) string {
	if !strings.Contains(root, "://") {
		if real, err := realPath(root); err == nil {
			root = filepath.ToSlash(real)
		}
	}
	return strings.TrimSuffix(root, "/") + "/"
}

// Input implements recognise.Place.
func (p prefix) Input(name string) (source.Input, error) {
	return source.Input{Store: p.store, Name: name, Path: p.shown + name}, nil
}

// Names implements recognise.Place.
func (p prefix) Names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		apart := ""
		for info, err := range objstore.ListAll(ctx, p.store, "") {
			if err != nil {
				yield("", err)
				return
			}
			at := 0
			for dir := range strings.SplitAfterSeq(info.Name, "/") {
				if at += len(dir); strings.HasSuffix(dir, "/") && strings.ContainsAny(dir[:1], "._") &&
					apart != info.Name[:at] {
					if apart = info.Name[:at]; !yield(apart, nil) {
						return
					}
				}
			}
			if !strings.HasSuffix(info.Name, "/") && !yield(info.Name, nil) {
				return
			}
		}
	}
}

// lookAtStore finds the kind and the objects of an address in a store: one object, the objects that
// match a glob, or all objects below a prefix.
func (f *Found) lookAtStore(ctx context.Context, src string) (*recognised, error) {
	dir, pattern, glob := patterns.CutAddress(src, func(name string) bool {
		return recognise.OfName(name) != nil || f.TextLines && recognise.Text.Names(name)
	})
	store, err := address.Open(ctx, dir, address.Options{Logger: f.Log})
	if err != nil {
		return nil, wrongf("%w", err)
	}
	p := prefix{store, strings.TrimSuffix(store.String(), "/") + "/"}
	names, left := []string{pattern}, &tally.Tally{Listed: 1}
	switch {
	case glob:
		if names, left, err = f.expandObjects(ctx, p, pattern); err != nil {
			return nil, err
		}
	case pattern == "":
		return f.lookAtFolder(ctx, objstore.NewAddress(src).String(), p, []source.Input{{Store: store}})
	}
	var files []source.Input
	for _, name := range names {
		in, _ := p.Input(name)
		files = append(files, in)
	}
	r, err := f.lookAtFiles(ctx, p.shown+pattern, files)
	return r.counted(left), err
}

// expandObjects lists the objects that a pattern names.
func (f *Found) expandObjects(ctx context.Context, p prefix,
	pattern string) (names []string, left *tally.Tally, err error) {
	left = new(tally.Tally)
	words, err := patterns.Braces(pattern)
	if err != nil {
		return nil, nil, wrongf("%w", err)
	}
	passed := ""
	for _, word := range words {
		if !strings.ContainsAny(word, "*?[\\") {
			names = append(names, word) // named one by one; opening reports those that do not exist
			continue
		}
		if !doublestar.ValidatePattern(word) {
			return nil, nil, wrongf("source %s%s: not a glob; write one such as s3://bucket/prefix/*.parquet", p.shown,
				word)
		}
		for info, err := range objstore.ListAll(ctx, p.store, word[:strings.IndexAny(word, "*?[\\")]) {
			if err != nil {
				return nil, nil, err
			}
			match, _ := doublestar.Match(word, info.Name)
			switch {
			case !match || recognise.OfName(info.Name) == nil && !f.TextLines:
			case globs.Passes(word, info.Name):
				passed = cmp.Or(passed, info.Name)
				left.Listed++
				left.Leave(tally.Hidden, info.Name)
			case objstore.CheckName(info.Name) != nil && f.LeaveUnsafe:
				left.Listed++
				left.Leave(tally.Unsafe, info.Name)
			case objstore.CheckName(info.Name) != nil:
				return nil, nil, fmt.Errorf("source %s%s: %w", p.shown, pattern, tally.UnsafeError(info.Name))
			default:
				names = append(names, info.Name)
			}
		}
	}
	if names == nil && passed != "" {
		return nil, nil, fmt.Errorf("source %s%s matches only names such as %s, which begin with a dot or an underscore, as those of hidden and unfinished files do: write the mark in the pattern%w", p.shown, pattern, passed, plain.Silent(fs.ErrNotExist))
	}
	if names == nil {
		return nil, nil, fmt.Errorf("source %s%s: there are no %s of this name: check the path%w", p.shown, pattern,
			kindNames(), plain.Silent(fs.ErrNotExist))
	}
	left.Listed += int64(len(names))
	return slices.Clip(names), left, f.checkSplits(p.shown+pattern, names)
}

// noSource is the error of a source that is not there.
func noSource(name string) error {
	owner, set, _ := strings.Cut(name, "/")
	if _, err := os.Stat(owner); owner != "" && set != "" && err != nil && !strings.ContainsAny(set, "/.*") && !strings.ContainsAny(owner, ".:~") {
		return fmt.Errorf("source %s: there is no such file or folder: check the path; a data set of the Hugging Face Hub is hf://datasets/%[1]s%w", name,
			plain.Silent(fs.ErrNotExist))
	}
	return fmt.Errorf("source %s: there is no such file or folder: check the path%w", name,
		plain.Silent(fs.ErrNotExist))
}
