package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inputs"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/writer/source"
)

// lookAtDisk finds the kind and the files of a path, a glob or braces.
func lookAtDisk(ctx context.Context, f *packFlags, src string) (*kind, []source.Input, string, error) {
	info, err := os.Stat(src)
	switch {
	case err == nil && info.IsDir():
		return lookAtFolder(ctx, f, src)
	case err != nil && strings.ContainsAny(src, "*?[{"):
		k, files, err := expand(src)
		return k, files, "", err
	}
	if k := kindOf(src); k != nil {
		in, err := localInput(src)
		return k, []source.Input{in}, "", err
	}
	return &filesKind, nil, "", nil // opening it gives the error
}

// expand lists the files of globs and braces, which must be of one kind.
func expand(src string) (*kind, []source.Input, error) {
	names, err := inputs.Expand(src)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &exitError{exitNotFound, err}
	}
	if err != nil {
		return nil, nil, usagef("%w; write one such as 'data/*.parquet' or 'train-{000000..000099}.tar'", err)
	}
	k, err := sameKind(src, names)
	if err != nil {
		return nil, nil, err
	}
	var files []source.Input
	for _, name := range names {
		in, err := localInput(name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, in)
	}
	return k, files, nil
}

func localInput(name string) (source.Input, error) {
	in, err := source.LocalInput(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = &exitError{exitNotFound, fmt.Errorf("source %s: %w", name, fs.ErrNotExist)}
	}
	return in, err
}

// lookAtFolder finds whether all files of a folder are of one kind, except names that begin with a
// dot or an underscore. The first file of another kind ends the search, because folders may be
// large.
func lookAtFolder(ctx context.Context, f *packFlags, dir string) (k *kind, files []source.Input, why string, err error) {
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
		}
		of := kindOf(d.Name())
		if of != nil && of.whole != nil && !of.whole(f) {
			of = nil
		}
		if of == nil || k != nil && k != of {
			why = fmt.Sprintf(" (it holds %s)", name)
			files = nil
			return fs.SkipAll
		}
		k = of
		in, err := localInput(name)
		files = append(files, in)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, nil, "", err
	}
	if files == nil || err != nil { // reading it as a folder of files gives the error
		return &filesKind, nil, why, nil
	}
	return k, files, "", nil
}

// lookAtObjects does for a prefix of a store what lookAtFolder does for a folder.
func lookAtObjects(ctx context.Context, f *packFlags, store objstore.Store, input func(string) source.Input) (k *kind, files []source.Input, err error) {
	asFiles := []source.Input{{Store: store}}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, nil, err
		}
		if strings.HasSuffix(info.Name, "/") || strings.ContainsAny(info.Name[:1], "._") || strings.Contains(info.Name, "/.") || strings.Contains(info.Name, "/_") {
			continue
		}
		of := kindOf(info.Name)
		if of == nil || k != nil && k != of || of.whole != nil && !of.whole(f) {
			return &filesKind, asFiles, nil
		}
		k, files = of, append(files, input(info.Name))
	}
	if files == nil {
		return &filesKind, asFiles, nil
	}
	return k, files, nil
}

// lookAtStore finds the kind and the objects of an address in a store: one object, the objects that
// match a glob, or all objects below a prefix. A ? begins the options of the address and is never
// part of a glob.
func lookAtStore(ctx context.Context, f *packFlags, src string) (k *kind, files []source.Input, err error) {
	place, query, _ := strings.Cut(src, "?")
	if query != "" {
		query = "?" + query
	}
	scheme, rest, _ := strings.Cut(place, "://")
	host, name, _ := strings.Cut(rest, "/")
	glob := strings.ContainsAny(name, "*[{")
	dir, pattern := name, ""
	if glob || kindOf(name) != nil {
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
		return nil, nil, usagef("%w", err)
	}
	shown := strings.TrimSuffix(store.String(), "/") + "/"
	input := func(name string) source.Input { return source.Input{Store: store, Name: name, Path: shown + name} }
	if !glob && kindOf(name) != nil {
		return kindOf(name), []source.Input{input(pattern)}, nil
	}
	if !glob {
		return lookAtObjects(ctx, f, store, input)
	}
	words, err := inputs.Braces(pattern)
	if err != nil {
		return nil, nil, usagef("%w", err)
	}
	var names []string
	for _, word := range words {
		if !strings.ContainsAny(word, "*[?\\") {
			names = append(names, word) // named one by one; opening reports those that do not exist
			continue
		}
		if !doublestar.ValidatePattern(word) {
			return nil, nil, usagef("source %s%s: not a glob; write one such as s3://bucket/prefix/*.parquet", shown, word)
		}
		prefix := word[:strings.IndexAny(word, "*[?\\")] // common to all names
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return nil, nil, err
			}
			if match, _ := doublestar.Match(word, info.Name); match && kindOf(info.Name) != nil {
				names = append(names, info.Name)
			}
		}
	}
	if names == nil {
		return nil, nil, &exitError{exitNotFound, fmt.Errorf("source %s%s: neither %s there: %w", shown, pattern, kindNames(), fs.ErrNotExist)}
	}
	if k, err = sameKind(shown+pattern, names); err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		files = append(files, input(name))
	}
	return k, files, nil
}
