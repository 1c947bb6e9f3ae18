package main

import (
	"cmp"
	"context"
	"errors"
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

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inputs"
	"github.com/shardtool/shardtool/cmd/shardtool/internal/zips"
	"github.com/shardtool/shardtool/internal/globs"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer/source"
)

// asFlag is --as: a kind of files instead of the one recognised.
type asFlag struct {
	given string
	lines bool // --text-lines
	files bool
	kind  *kind
	// ending is the extension by which files are read.
	ending string
}

// asKinds are the values of --as, but files.
var asKinds = map[string]asFlag{
	"parquet": {kind: &parquetKind}, "tokens": {kind: &tokensKind}, "arrays": {kind: &arraysKind},
	"arrow": {kind: &arrowKind, ending: ".arrow"}, "mds": {kind: &mdsKind, ending: ".mds"}, "tar": {kind: &tarKind, ending: ".tar"},
	"jsonl": {kind: &linesKind, ending: ".jsonl"}, "json": {kind: &linesKind, ending: ".json"},
	"csv": {kind: &linesKind, ending: ".csv"}, "tsv": {kind: &linesKind, ending: ".tsv"},
}

func (f *asFlag) options() error {
	f.files = f.given == "files"
	if f.lines && f.given != "" {
		return usagef("--text-lines makes a sample of each line, whatever the files are, and --as %s says otherwise: leave one out", f.given)
	}
	if f.lines {
		f.kind = &textKind
		return nil
	}
	f.kind, f.ending = asKinds[f.given].kind, asKinds[f.given].ending
	if f.given == "zip" {
		return usagef("--as zip: archives are known by their bytes, and --as says what the files in them are; on standard input, --stdin-format zip reads one")
	}
	if f.given != "" && !f.files && f.kind == nil {
		return usagef("--as %q: use files, parquet, arrow, jsonl, json, csv, tsv, mds, tar, tokens or arrays", f.given)
	}
	return nil
}

// recognised is what a source is.
type recognised struct {
	kind  *kind
	files []source.Input
	// why explains, in messages, why a folder is one of files.
	why string
	// note is printed: what was left aside.
	note string
	// folder reports that --include and --exclude have been applied.
	folder bool
}

// lookAtDisk finds the kind and the files of a path, a glob or braces.
func lookAtDisk(ctx context.Context, f *packFlags, src string) (*recognised, error) {
	info, err := os.Stat(src)
	switch {
	case err == nil && info.IsDir():
		return lookAtFolder(ctx, f, src, diskFolder(src), nil)
	case err != nil && strings.ContainsAny(src, "*?[{"):
		names, err := inputs.Expand(src)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotFound, err}
		}
		if err != nil {
			return nil, usagef("%w; write one such as 'data/*.parquet' or 'train-{000000..000099}.tar'", err)
		}
		var files []source.Input
		for _, name := range names {
			in, err := localInput(name)
			if err != nil {
				return nil, err
			}
			files = append(files, in)
		}
		if err := f.checkSplits(src, names); err != nil {
			return nil, err
		}
		return lookAtFiles(ctx, f, src, files)
	}
	if err != nil && kindOf(src) == nil {
		return &recognised{kind: &filesKind}, nil // opening it gives the error
	}
	in, err := localInput(src)
	if err != nil {
		return nil, err
	}
	return lookAtFiles(ctx, f, src, []source.Input{in})
}

func localInput(name string) (source.Input, error) {
	in, err := source.LocalInput(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = noSource(name)
	}
	return in, err
}

// mostRead is the number of named files whose bytes are read.
const mostRead = 64

// lookAtFiles finds the kind of files that were named, which must be the same for all.
func lookAtFiles(ctx context.Context, f *packFlags, src string, files []source.Input) (*recognised, error) {
	r := &recognised{files: files}
	for i := range files {
		in := &files[i]
		name := cmp.Or(in.Path, in.Name)
		var of *recognise.Kind
		as := ""
		if i < mostRead {
			var err error
			of, as, err = recognise.Of(ctx, source.Input{Store: in.Store, Name: in.Name, Path: in.Path})
			if err != nil && ctx.Err() != nil { // reading it gives other errors
				return nil, err
			}
		}
		of = cmp.Or(of, recognise.OfName(name)) // a link may lead to a file without an extension
		in.As = cmp.Or(as, f.as.ending)
		if of == nil && strings.EqualFold(path.Ext(name), ".json") { // one file alone is no field
			of = recognise.Lines
		}
		if of == recognise.Arrays && f.tokens.length > 0 && strings.EqualFold(path.Ext(name), ".npy") { // the error names its type
			of = recognise.Tokens
		}
		k := kindFor(of)
		if k != &zipKind && f.as.kind != nil { // --as is about the files in an archive
			k = f.as.kind
		}
		switch {
		case of != nil && k == nil && !f.as.files:
			return nil, refused(name, of, name, name)
		case k == nil && len(files) == 1, k != &zipKind && f.as.files:
			return &recognised{kind: &filesKind}, nil // opening it gives the error
		case k == nil:
			folder, pattern := cutGlob(src)
			return nil, usagef("source %s matches %s, which is a part of a sample: give the folder %s with --include '%s'; globs and braces are for files that hold samples: %s", src, name, folder, pattern, kindNames())
		case r.kind == nil:
			r.kind = k
		case k != r.kind:
			return nil, usagef("source %s matches %s and %s, which are of two kinds: pack one kind, then the other with --append", src, cmp.Or(files[0].Path, files[0].Name), name)
		}
	}
	return lookInArchives(ctx, f, src, r)
}

// cutGlob divides a glob into the folder that it begins with and the pattern below it.
func cutGlob(glob string) (folder, pattern string) {
	folder = glob[:strings.LastIndexByte(glob[:strings.IndexAny(glob+"*", "*?[{")], '/')+1]
	return cmp.Or(folder, "."), glob[len(folder):]
}

// zipPlace is a zip archive.
type zipPlace struct{ prefix }

// lookInArchives finds what zip archives contain, as if each were a folder. Other sources it returns.
func lookInArchives(ctx context.Context, f *packFlags, src string, r *recognised) (*recognised, error) {
	if r.kind != &zipKind {
		return r, nil
	}
	all := &recognised{note: r.note, folder: true}
	for _, in := range r.files {
		store, err := zips.New(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("source %w", err)
		}
		one, err := lookAtFolder(ctx, f, store.String(), zipPlace{prefix{store, store.String() + "/"}}, []source.Input{{Store: store}})
		if err != nil {
			return nil, err
		}
		all.kind = cmp.Or(all.kind, one.kind)
		if one.kind != all.kind {
			return nil, usagef("source %s: %s holds %s and %s %s: pack one kind, then the other with --append", src, r.files[0].Path, all.kind.of.Many, in.Path, one.kind.of.Many)
		}
		all.files, all.why = append(all.files, one.files...), one.why
		all.note = strings.TrimPrefix(all.note+"\nfound "+one.note, "\nfound ")
		all.note = strings.TrimSuffix(all.note, "\nfound ")
	}
	return all, nil
}

// refused returns the error for a kind that pack does not read. file is what the help reads.
func refused(src string, of *recognise.Kind, by, file string) error {
	shownBy := ""
	if by != src {
		shownBy = ", by its " + by
	}
	help, program, _ := strings.Cut(strings.ReplaceAll(of.Help, "FILE", file), "\n")
	err := usagef("source %s is %s%s, which pack does not read; --as files packs its files as they are. Instead, %s", src, of.One, shownBy, help)
	return &refusedError{err, of, program}
}

// lookAtFolder finds what a folder or a prefix contains. asFiles is its input as a folder of files.
func lookAtFolder(ctx context.Context, f *packFlags, src string, place recognise.Place, asFiles []source.Input) (*recognised, error) {
	opt := recognise.Options{Choice: globs.Choice{Include: f.files.Include, Exclude: f.files.Exclude}, Tokens: f.tokens.whole(), Files: f.as.files, Rows: len(f.rows.files.given) > 0, Splits: f.allSplits}
	if f.as.kind != nil {
		opt.As = f.as.kind.of
	}
	a, err := recognise.Folder(ctx, place, opt)
	var mixed *recognise.MixedError
	var splits *recognise.SplitsError
	var apart *recognise.ApartError
	var unread *fs.PathError
	switch {
	case errors.As(err, &splits) && len(splits.Saved) > 0:
		return nil, usagef("source %s: %w: pack each to its own data set, such as %s", src, err, path.Join(filepath.ToSlash(src), splits.Saved[0]))
	case errors.As(err, &splits):
		_, disk := place.(diskFolder)
		return nil, usagef("source %s: %w: pack each to its own data set, %s; or pack them as one with --all-splits", src, err, oneSplit(src, splits.Splits, disk))
	case errors.As(err, &apart):
		return nil, usagef("source %s: %w: name them, such as %s", src, err, path.Join(filepath.ToSlash(src), apart.Name))
	case errors.As(err, &mixed) && mixed.Metadata != "":
		return nil, usagef("source %s: %w: --file-column image=file_name joins the files that %s names to its rows, each as the field image; or choose with --include or --exclude, or pack all as fields of samples with --as files",
			src, err, mixed.Metadata)
	case errors.As(err, &mixed):
		return nil, usagef("source %s: %w: choose with --include or --exclude, or pack all as fields of samples with --as files", src, err)
	case err != nil && (ctx.Err() != nil || asFiles != nil):
		return nil, err
	case err != nil && !errors.As(err, &unread): // of a layout
		return nil, fmt.Errorf("source %s: %w", src, err)
	case err != nil: // reading it as a folder of files gives the error
		return &recognised{kind: &filesKind, files: asFiles}, nil
	}
	r := &recognised{kind: &filesKind, files: asFiles, folder: true}
	if a.By != "" {
		r.why = fmt.Sprintf(" (it holds %s)", path.Join(filepath.ToSlash(src), a.By))
	}
	if a.Fields && !f.as.files {
		r.note = fmt.Sprintf("each .npy file in %s is a field of a sample; --as arrays makes a sample of each row", src)
	}
	if a.Kind == nil {
		return r, nil
	}
	if r.kind = kindFor(a.Kind); r.kind == nil {
		file := strings.TrimSuffix(filepath.ToSlash(src), "/")
		if !a.Layout {
			file = path.Join(filepath.ToSlash(src), a.By)
		}
		return nil, refused(src, a.Kind, a.By, file)
	}
	if _, nested := place.(zipPlace); nested && r.kind == &zipKind {
		return nil, usagef("source %s: it holds archives in an archive, such as %s: unpack it and pack the folder", src, a.By)
	}
	r.why, r.files = "", nil
	for _, name := range a.Names {
		in, err := place.Input(name)
		if err != nil {
			return nil, err
		}
		in.As = cmp.Or(a.As[name], f.as.ending)
		r.files = append(r.files, in)
	}
	if a.Left > 0 {
		more := ""
		if n := a.Left - len(a.Aside); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		r.note = fmt.Sprintf("%s in %s; left aside: %s%s", a.Kind.Many, src, strings.Join(a.Aside, ", "), more)
	}
	return lookInArchives(ctx, f, src, r)
}

// oneSplit says how to choose one of the splits in a source.
func oneSplit(src string, splits recognise.Splits, disk bool) string {
	of := splits[len(splits)-1] // train, or validation
	if i := slices.IndexFunc(splits, func(s recognise.Split) bool { return s.Name == "train" }); i >= 0 {
		of = splits[i]
	}
	switch {
	case of.Folder != "" && disk:
		return "such as " + path.Join(filepath.ToSlash(src), of.Folder)
	case of.Folder != "":
		return "such as with --include '" + of.Folder + "/**'"
	case strings.HasPrefix(strings.ToLower(path.Base(of.Example)), of.Word):
		return "such as with --include '" + path.Base(of.Example)[:len(of.Word)] + "*'"
	}
	return "such as with --include '*" + of.Word + "*'"
}

// checkSplits refuses a glob that matches the files of several splits without naming them.
func (f *packFlags) checkSplits(glob string, names []string) error {
	folder, pattern := cutGlob(glob)
	var below []string
	for _, name := range names {
		below = append(below, strings.TrimPrefix(filepath.ToSlash(name), folder))
	}
	splits := recognise.SplitsOf(below)
	if len(splits) < 2 || f.allSplits || !slices.ContainsFunc(splits, func(s recognise.Split) bool { return !strings.Contains(strings.ToLower(pattern), s.Word) }) {
		return nil
	}
	return usagef("source %s matches the splits %s: pack each to its own data set, with a pattern of its own; or pack them as one with --all-splits", glob, splits)
}

// diskFolder is a folder of this machine.
type diskFolder string

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

// Input implements recognise.Place.
func (p prefix) Input(name string) (source.Input, error) {
	return source.Input{Store: p.store, Name: name, Path: p.shown + name}, nil
}

// Names implements recognise.Place.
func (p prefix) Names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		apart := ""
		for info, err := range p.store.List(ctx, "") {
			if err != nil {
				yield("", err)
				return
			}
			at := 0
			for dir := range strings.SplitAfterSeq(info.Name, "/") {
				if at += len(dir); strings.HasSuffix(dir, "/") && strings.ContainsAny(dir[:1], "._") && apart != info.Name[:at] {
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
func lookAtStore(ctx context.Context, f *packFlags, src string) (*recognised, error) {
	dir, pattern, glob := inputs.CutAddress(src, func(name string) bool {
		return recognise.OfName(name) != nil || f.as.lines && recognise.Text.Names(name)
	})
	store, err := address.Open(ctx, dir, address.Options{Logger: warnings})
	if err != nil {
		return nil, usagef("%w", err)
	}
	p := prefix{store, strings.TrimSuffix(store.String(), "/") + "/"}
	names := []string{pattern}
	switch {
	case glob:
		if names, err = expandObjects(ctx, f, p, pattern); err != nil {
			return nil, err
		}
	case pattern == "":
		return lookAtFolder(ctx, f, src, p, []source.Input{{Store: store}})
	}
	var files []source.Input
	for _, name := range names {
		in, _ := p.Input(name)
		files = append(files, in)
	}
	return lookAtFiles(ctx, f, p.shown+pattern, files)
}

// expandObjects lists the objects that a pattern names.
func expandObjects(ctx context.Context, f *packFlags, p prefix, pattern string) (names []string, err error) {
	words, err := inputs.Braces(pattern)
	if err != nil {
		return nil, usagef("%w", err)
	}
	passed := ""
	for _, word := range words {
		if !strings.ContainsAny(word, "*?[\\") {
			names = append(names, word) // named one by one; opening reports those that do not exist
			continue
		}
		if !doublestar.ValidatePattern(word) {
			return nil, usagef("source %s%s: not a glob; write one such as s3://bucket/prefix/*.parquet", p.shown, word)
		}
		for info, err := range p.store.List(ctx, word[:strings.IndexAny(word, "*?[\\")]) {
			if err != nil {
				return nil, err
			}
			match, _ := doublestar.Match(word, info.Name)
			switch {
			case !match || recognise.OfName(info.Name) == nil && !f.as.lines:
			case globs.Passes(word, info.Name):
				passed = cmp.Or(passed, info.Name)
			default:
				names = append(names, info.Name)
			}
		}
	}
	if names == nil && passed != "" {
		return nil, &exitError{exitNotFound, fmt.Errorf("source %s%s matches only names such as %s, which begin with a dot or an underscore, as those of hidden and unfinished files do: write the mark in the pattern", p.shown, pattern, passed)}
	}
	if names == nil {
		return nil, &exitError{exitNotFound, fmt.Errorf("source %s%s: there are no %s of this name: check the path", p.shown, pattern, kindNames())}
	}
	return slices.Clip(names), f.checkSplits(p.shown+pattern, names)
}

// noSource is the error of a source that is not there.
func noSource(name string) error {
	return &exitError{exitNotFound, fmt.Errorf("source %s: there is no such file or folder: check the path", name)}
}
