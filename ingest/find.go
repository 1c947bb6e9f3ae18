package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/patterns"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/input/zips"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/writer/source"
)

// asKind is a kind of files instead of the one recognised.
type asKind struct {
	name  string
	files bool
	kind  *kind
	// ending is the extension by which files are read.
	ending string
}

// asKinds are by the values of Options.As.
var asKinds = []asKind{
	{name: "files", files: true}, {name: "parquet", kind: &parquetKind}, {name: "arrow", kind: &arrowKind, ending: ".arrow"},
	{name: "jsonl", kind: &linesKind, ending: ".jsonl"}, {name: "json", kind: &linesKind, ending: ".json"},
	{name: "csv", kind: &linesKind, ending: ".csv"}, {name: "tsv", kind: &linesKind, ending: ".tsv"},
	{name: "mds", kind: &mdsKind, ending: ".mds"}, {name: "tar", kind: &tarKind, ending: ".tar"},
	{name: "tokens", kind: &tokensKind}, {name: "arrays", kind: &arraysKind},
}

// Kinds returns the values of Options.As.
func Kinds() (names []string) {
	for _, as := range asKinds {
		names = append(names, as.name)
	}
	return names
}

func (f *Found) parseAs() error {
	if f.TextLines && f.As != "" {
		return wrongf("%s makes a sample of each line, whatever the files are, and %s %s says otherwise: leave one out",
			f.opt("text-lines"), f.opt("as"), f.As)
	}
	if f.TextLines {
		f.as.kind = &textKind
		return nil
	}
	if at := slices.IndexFunc(asKinds, func(as asKind) bool { return as.name == f.As }); at >= 0 {
		f.as = asKinds[at]
	}
	if f.As == "zip" {
		return wrongf("%s zip: archives are known by their bytes, and %[1]s says what the files in them are; on standard input, %s zip reads one", f.opt("as"), f.opt("stdin-format"))
	}
	if f.As != "" && f.as.name == "" {
		return wrongf("%s %q: use one of %s", f.opt("as"), f.As, strings.Join(Kinds(), ", "))
	}
	return nil
}

// recognised is what a source is.
type recognised struct {
	kind  *kind
	files []source.Input
	// why explains, in messages, why a folder is one of files.
	why string
	// note is printed: what was left out.
	note string
	// folder reports that Include and Exclude have been applied.
	folder bool
	// names accounts for what was listed to find the files.
	names tally.Tally
	// others are the files that rows may name, by their places.
	others map[string]string
}

// zipped reports whether the files are those of zip archives, as fields of samples.
func (r *recognised) zipped() bool {
	return r.kind == &filesKind && len(r.files) > 0 && !slices.ContainsFunc(r.files,
		func(in source.Input) bool { _, is := in.Store.(*zips.Store); return !is })
}

// counted adds what was listed. Folders of files count what they list themselves.
func (r *recognised) counted(more *tally.Tally) *recognised {
	if r != nil && r.kind != &filesKind {
		r.names.Add(more)
	}
	return r
}

// lookAtDisk finds the kind and the files of a path, a glob or braces.
func (f *Found) lookAtDisk(ctx context.Context, src string) (*recognised, error) {
	info, err := os.Stat(src)
	switch {
	case err == nil && info.IsDir():
		return f.lookAtFolder(ctx, src, diskFolder(src), nil)
	case err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice|fs.ModeSocket) != 0:
		return nil, wrongf("source %s is a pipe or a device, which has no size: write '-', which is standard input, or save what it has to a file", src)
	case err != nil && strings.ContainsAny(src, "*?[{"):
		names, left, err := patterns.Expand(src)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil {
			return nil, wrongf("%w; write one such as 'data/*.parquet' or 'train-{000000..000099}.tar'", err)
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
		r, err := f.lookAtFiles(ctx, src, files)
		return r.counted(left), err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSource(src)
	}
	if err != nil {
		return nil, err
	}
	in, err := localInput(src)
	if err != nil {
		return nil, err
	}
	r, err := f.lookAtFiles(ctx, src, []source.Input{in})
	return r.counted(&tally.Tally{Listed: 1}), err
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
func (f *Found) lookAtFiles(ctx context.Context, src string, files []source.Input) (*recognised, error) {
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
		// the error names its type
		if of == recognise.Arrays && f.Tokens.Length > 0 && strings.EqualFold(path.Ext(name), ".npy") {
			of = recognise.Tokens
		}
		k := kindFor(of)
		if k != &zipKind && f.as.kind != nil { // As is about the files in an archive
			k = f.as.kind
		}
		switch {
		case of != nil && k == nil && !f.as.files:
			help, program := of.Instead(name)
			return nil, f.refused(name, of, name, help, program)
		case k == nil && len(files) == 1, k != &zipKind && f.as.files:
			return nil, f.partOfSample(src)
		case k == nil:
			folder, pattern := cutGlob(src)
			return nil, wrongf("source %s matches %s, which is a part of a sample: give the folder %s with %s '%s'; globs and braces are for files that hold samples: %s", src, name, folder, f.opt("include"), pattern, kindNames())
		case r.kind == nil:
			r.kind = k
		case k != r.kind:
			return nil, wrongf("source %s matches %s and %s, which are of two kinds: pack one kind, then the other with %s", src, cmp.Or(files[0].Path, files[0].Name), name, f.opt("append"))
		}
	}
	return f.lookInArchives(ctx, src, r)
}

// cutGlob divides a glob into the folder that it begins with and the pattern below it.
func cutGlob(glob string) (folder, pattern string) {
	folder = glob[:strings.LastIndexByte(glob[:strings.IndexAny(glob+"*", "*?[{")], '/')+1]
	return cmp.Or(folder, "."), glob[len(folder):]
}

// zipPlace is a zip archive.
type zipPlace struct{ prefix }

// lookInArchives finds what zip archives contain, as if each were a folder. Other sources it
// returns.
func (f *Found) lookInArchives(ctx context.Context, src string, r *recognised) (*recognised, error) {
	if r.kind != &zipKind {
		return r, nil
	}
	all := &recognised{note: r.note, folder: true, names: r.names, others: map[string]string{}}
	for _, in := range r.files {
		store, err := zips.New(ctx, in.Store, in.Name, cmp.Or(in.Path, in.Name))
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", store, err)
		}
		one, err := f.lookAtFolder(ctx, store.String(), zipPlace{prefix{store, store.String() + "/"}},
			[]source.Input{{Store: store}})
		if err != nil {
			return nil, err
		}
		all.kind = cmp.Or(all.kind, one.kind)
		if one.kind != all.kind {
			return nil, wrongf("source %s: %s holds %s and %s %s: pack one kind, then the other with %s", src,
				r.files[0].Path, all.kind.of.Many, in.Path, one.kind.of.Many, f.opt("append"))
		}
		all.files, all.why = append(all.files, one.files...), one.why
		all.names.Add(&one.names)
		maps.Copy(all.others, one.others)
		all.note = strings.TrimPrefix(all.note+"\nfound "+one.note, "\nfound ")
		all.note = strings.TrimSuffix(all.note, "\nfound ")
	}
	return all, nil
}

// refused returns the error for a kind that pack does not read, with what to do instead.
func (f *Found) refused(src string, of *recognise.Kind, by, help, program string) error {
	shownBy := ""
	if by != src {
		shownBy = ", by its " + by
	}
	err := fmt.Errorf("source %s is %s%s, which pack does not read; %s files packs its files as they are. Instead, %s",
		src, of.One, shownBy, f.opt("as"), help)
	return &Error{err, of.ID, program}
}

// lookAtFolder finds what a folder or a prefix contains. asFiles is its input as a folder of files.
func (f *Found) lookAtFolder(ctx context.Context, src string, place recognise.Place,
	asFiles []source.Input) (*recognised, error) {
	opt := recognise.Options{Choice: globs.Choice{Include: f.Include, Exclude: f.Exclude}, Tokens: f.Tokens.whole(),
		Files: f.as.files, Rows: len(f.Rows.Files) > 0, Splits: f.AllSplits, LeaveUnsafe: f.LeaveUnsafe}
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
		return nil, wrongf("source %s: %w: pack each to its own data set, such as %s", src, err,
			below(src, splits.Saved[0]))
	case errors.As(err, &splits):
		_, disk := place.(diskFolder)
		return nil, wrongf("source %s: %w: pack each to its own data set, %s; or pack them as one with %s", src, err,
			f.oneSplit(src, splits.Splits, disk), f.opt("all-splits"))
	case errors.As(err, &apart):
		return nil, wrongf("source %s: %w: name them, such as %s", src, err, below(src, apart.Name))
	case errors.As(err, &mixed) && mixed.Metadata != "":
		return nil, wrongf("source %s: %w: %s image=file_name joins the files that %s names to its rows, each as the field image; or choose with %s or %s, or pack all as fields of samples with %s files", src, err, f.opt("file-column"), mixed.Metadata, f.opt("include"), f.opt("exclude"), f.opt("as"))
	case errors.As(err, &mixed):
		return nil, wrongf("source %s: %w: choose with %s or %s, or pack all as fields of samples with %s files", src,
			err, f.opt("include"), f.opt("exclude"), f.opt("as"))
	case err != nil && (ctx.Err() != nil || asFiles != nil):
		return nil, err
	case err != nil && !errors.As(err, &unread): // of a layout
		return nil, fmt.Errorf("source %s: %w", src, err)
	case err != nil: // reading it as a folder of files gives the error
		return &recognised{kind: &filesKind, files: asFiles}, nil
	}
	r := &recognised{kind: &filesKind, files: asFiles, folder: true}
	if a.By != "" {
		r.why = fmt.Sprintf(" (it holds %s)", below(src, a.By))
	}
	if a.Fields && !f.as.files {
		r.note = fmt.Sprintf("each .npy file in %s is a field of a sample; %s arrays makes a sample of each row", src,
			f.opt("as"))
	}
	if a.Kind == nil {
		return r, nil
	}
	if r.kind = kindFor(a.Kind); r.kind == nil {
		folder := strings.TrimSuffix(filepath.ToSlash(src), "/")
		file, help, program := below(folder, a.Root), "", ""
		if !a.Layout {
			file = below(src, a.By)
		}
		if len(a.Names) > 1 {
			help, program = a.Kind.InsteadOfAll(folder, path.Ext(a.By))
		}
		if help == "" {
			help, program = a.Kind.Instead(file)
		}
		return nil, f.refused(src, a.Kind, a.By, help, program)
	}
	if _, nested := place.(zipPlace); nested && r.kind == &zipKind {
		return nil, wrongf("source %s: it holds archives in an archive, such as %s: unpack it and pack the folder", src,
			a.By)
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
	if at, is := place.(interface{ root() string }); is && len(a.Others) > 0 {
		r.others = map[string]string{}
		below := placeOf(at.root())
		for _, name := range a.Others {
			r.others[below+name] = name
		}
	}
	if r.names = a.Tally; a.Tally.Total() > 0 {
		r.note = fmt.Sprintf("%s in %s; left out: %s", a.Kind.Many, src, plain.Text(a.Tally.String()))
	}
	return f.lookInArchives(ctx, src, r)
}

// below is the path of a name in a folder, or its address in a store.
func below(src, name string) string {
	if strings.Contains(src, "://") {
		return strings.TrimSuffix(src, "/") + "/" + name
	}
	return path.Join(filepath.ToSlash(src), name)
}

// oneSplit says how to choose one of the splits in a source.
func (f *Found) oneSplit(src string, splits recognise.Splits, disk bool) string {
	of := splits[len(splits)-1] // train, or validation
	if i := slices.IndexFunc(splits, func(s recognise.Split) bool { return s.Name == "train" }); i >= 0 {
		of = splits[i]
	}
	switch {
	case of.Folder != "" && disk:
		return "such as " + path.Join(filepath.ToSlash(src), of.Folder)
	case of.Folder != "":
		return "such as with " + f.opt("include") + " '" + of.Folder + "/**'"
	case strings.HasPrefix(strings.ToLower(path.Base(of.Example)), of.Word):
		return "such as with " + f.opt("include") + " '" + path.Base(of.Example)[:len(of.Word)] + "*'"
	}
	return "such as with " + f.opt("include") + " '*" + of.Word + "*'"
}

// checkSplits refuses a glob that matches the files of several splits without naming them.
func (f *Found) checkSplits(glob string, names []string) error {
	folder, pattern := cutGlob(glob)
	var below []string
	for _, name := range names {
		below = append(below, strings.TrimPrefix(filepath.ToSlash(name), folder))
	}
	splits := recognise.SplitsOf(below)
	if len(splits) < 2 || f.AllSplits || !slices.ContainsFunc(splits,
		func(s recognise.Split) bool { return !strings.Contains(strings.ToLower(pattern), s.Word) }) {
		return nil
	}
	return wrongf("source %s matches the splits %s: pack each to its own data set, with a pattern of its own; or pack them as one with %s", glob, splits, f.opt("all-splits"))
}
