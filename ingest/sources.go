package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/open"
)

// splits returns the splits that the names of the sources say, below the folder of all of them.
func (f *Found) splits() recognise.Splits {
	var names []string
	switch {
	case f.kind == &datasetKind: // made to be joined
	case f.kind == &filesKind:
		for _, src := range f.srcs {
			names = append(names, filepath.ToSlash(src.String())+"/")
		}
	default:
		for _, in := range f.files {
			names = append(names, filepath.ToSlash(cmp.Or(in.Path, in.Name)))
		}
	}
	if len(names) < 2 {
		return nil
	}
	common := names[0]
	for _, name := range names {
		n := 0
		for n < min(len(common), len(name)) && common[n] == name[n] {
			n++
		}
		common = common[:n]
	}
	cut := strings.LastIndexByte(common, '/') + 1
	for i := range names {
		names[i] = names[i][cut:]
	}
	return recognise.SplitsOf(names)
}

// allNames names the sources.
func (f *Found) allNames() string {
	var all []string
	for _, src := range f.srcs {
		all = append(all, src.String())
	}
	return strings.Join(all, ", ")
}

// Check rejects a target inside a folder of sources, which a later pack would take for a
// source. It also rejects folders of files that do not exist, and a folder of other files as the
// target of data sets: it is the source where somebody swaps them. It warns of such files otherwise.
func (f *Found) Check(ctx context.Context, target string) error {
	target, err := address.Local(target)
	if err != nil {
		return wrongf("%w", err)
	}
	if f.kind == &datasetKind {
		err = f.checkDatasets(ctx, f.srcs, target)
	} else {
		err = f.checkFiles(target)
	}
	if err != nil || target == "" {
		return err
	}
	name, to := f.unpacked(ctx, target), objstore.Addresses([]string{target})[0]
	switch {
	case name == "":
	case f.kind == &datasetKind:
		return &Error{Err: hint.With(
			fmt.Errorf("%s has files that are no part of a data set, such as %s, and the source %s is a data set: "+
				"sources come first; for a data set among these files, choose an empty folder", to, name, f.srcs[0]),
			hint.Command("adds the files to the data set", "pack", to.String(), f.srcs[0].String(), "--append"),
			hint.Command("replaces it", "pack", to.String(), f.srcs[0].String(), "--overwrite"),
		)}
	default:
		f.warn("%s has other files too, such as %s, and the shards will lie among them: a folder of its own is easier to copy and to delete", to, name)
	}
	return nil
}

// unpacked is recognise.Others of a place that has no data set.
func (f *Found) unpacked(ctx context.Context, target string) string {
	store, _, err := open.Store(ctx, target, f.reading())
	if err != nil {
		return ""
	}
	if is, err := f.isDataset(ctx, target); is || err != nil {
		return ""
	}
	return recognise.Others(ctx, store)
}

// checkFiles is Check for sources that are no data sets.
func (f *Found) checkFiles(target string) error {
	var folders []string
	for _, given := range f.srcs {
		src := given.Secret()
		if src == stdinName {
			continue
		}
		if place, _, _ := strings.Cut(src, "?"); strings.Contains(place, "://") {
			to, _, _ := strings.Cut(target, "?")
			if strings.HasPrefix(strings.TrimRight(to, "/")+"/", strings.TrimRight(place, "/")+"/") {
				return wrongf("%s is inside the source %s and would be packed into itself: choose another place", to,
					place)
			}
			continue
		}
		if info, err := os.Stat(src); f.kind == &filesKind && len(f.files) == 0 || err == nil && info.IsDir() {
			folders = append(folders, src)
		}
	}
	return checkSources(folders, target)
}

// Inside rejects a target inside a folder or a data set of the sources, none of which it lists.
func Inside(ctx context.Context, addresses []string, target string) error {
	addresses, err := address.Locals(append([]string{target}, addresses...))
	if err != nil {
		return wrongf("%w", err)
	}
	target, addresses = addresses[0], addresses[1:]
	f := &Found{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	for _, src := range addresses {
		if _, err := os.Stat(filepath.Join(src, format.ManifestName)); err == nil {
			if err := f.checkDatasets(ctx, objstore.Addresses([]string{src}), target); err != nil {
				return err
			}
		} else if info, err := os.Stat(src); err == nil && info.IsDir() {
			if err := checkSources([]string{src}, target); err != nil {
				return err
			}
		}
	}
	return nil
}

// knows rejects options that do not apply to this kind.
func (f *Found) knows(r *recognised, src objstore.Address) error {
	k := r.kind
	for _, other := range allKinds() {
		for _, option := range other.options {
			if option == "attr" && len(f.Rows.Attrs) == 0 { // arrays have lengths in sources of all kinds
				continue
			}
			applied := r.folder && (option == "include" || option == "exclude") || option == "key-prefix" && r.zipped()
			if f.said(option) && !slices.Contains(k.options, option) && !applied {
				err := fmt.Errorf("%s is for %s, and source %s is %s%s: %s", f.opt(option), whoKnows(option), src, k.of.One,
					r.why, cmp.Or(k.instead[option], k.instead[""]))
				if after, is := k.afterwards[option]; is {
					err = hint.With(err, after)
				}
				return &Error{Err: err}
			}
		}
	}
	return nil
}

func whoKnows(option string) string {
	var names []string
	for _, k := range allKinds() {
		if slices.Contains(k.options, option) {
			names = append(names, k.of.Many)
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return names[0]
}

// lookAt finds the kind of one source, and its files.
func (f *Found) lookAt(ctx context.Context, src string) (*recognised, error) {
	if is, err := f.isDataset(ctx, src); is || err != nil {
		return &recognised{kind: &datasetKind}, err
	}
	if strings.Contains(src, "://") {
		return f.lookAtStore(ctx, src)
	}
	return f.lookAtDisk(ctx, src)
}

// checkSources rejects folders that contain the target.
func checkSources(srcs []string, target string) error {
	abs, err := realPath(target)
	if err != nil {
		return err
	}
	for _, s := range srcs {
		src, err := realPath(s)
		if err != nil {
			return err
		}
		if within(src, abs) && !strings.Contains(target, "://") {
			return wrongf("%s is inside the source %s and would be packed into itself: choose another place", target, s)
		}
	}
	return nil
}

// partOfSample refuses a file that is no sample alone.
func (f *Found) partOfSample(src string) error {
	return wrongf("source %s is a part of a sample: give its folder with %s '*%s'; files that hold samples are %s", src,
		f.opt("include"), filepath.Ext(src), kindNames())
}

// within reports whether a path is a folder, or below it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// realPath resolves links as far as the path exists.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for dir, rest := abs, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if found, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(found, rest), nil
		}
		if dir == filepath.Dir(dir) {
			return abs, nil
		}
	}
}

// isDataset reports whether a source is a data set: it has a manifest, or names a generation.
func (f *Found) isDataset(ctx context.Context, src string) (bool, error) {
	src, _ = open.CutView(src) // opening it later refuses a view
	place, _, _ := strings.Cut(src, "?")
	if kindOf(place) != nil || strings.Contains(place, "://") && strings.ContainsAny(place, "*[{") {
		return false, nil
	}
	if !strings.Contains(src, "://") {
		if _, err := os.Stat(src); err == nil { // the name of a folder may contain an @
			text, err := os.ReadFile(filepath.Join(src, format.ManifestName))
			return err == nil && isSummary(text), nil
		}
		dir, _, ok := open.CutGeneration(src)
		info, err := os.Stat(dir)
		return ok && err == nil && info.IsDir(), nil
	}
	if _, _, ok := open.CutGeneration(src); ok {
		return true, nil
	}
	store, _, err := open.Store(ctx, src, f.reading())
	if err != nil {
		return false, err
	}
	text, _, err := objstore.ReadAll(ctx, store, format.ManifestName, 64<<20)
	return err == nil && isSummary(text), ctx.Err() // if it cannot be read, listing gives the better error
}

// isSummary reports whether a text is the manifest of a data set, even of a version that this one
// does not read.
func isSummary(text []byte) bool {
	_, err := metadata.DecodeSummary(text)
	return err == nil || errors.Is(err, format.ErrVersion)
}

// checkDatasets refuses to pack a data set into itself. An empty target passes.
func (f *Found) checkDatasets(ctx context.Context, srcs []objstore.Address, target string) error {
	if target == "" {
		return nil
	}
	for _, src := range srcs {
		addr, _ := open.CutView(src.Secret())
		addr, _, _ = open.CutGeneration(addr)
		same := false
		if from, err := realPath(addr); err == nil && !strings.Contains(addr, "://") &&
			!strings.Contains(target, "://") {
			to, err := realPath(target)
			same = err == nil && within(from, to)
		} else if from, _, err := open.Store(ctx, addr, f.reading()); err == nil {
			to, _, err := open.Store(ctx, target, f.reading())
			same = err == nil && strings.TrimSuffix(from.String(), "/") == strings.TrimSuffix(to.String(), "/")
		}
		if same {
			return wrongf("the data set %s would be packed into itself: choose another destination", src)
		}
	}
	return nil
}

func (f *Found) reading() open.Options { return open.Options{Log: f.Log} }
