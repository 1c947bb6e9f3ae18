package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
)

// findSources finds the kind of the sources, which must be the same for all, and their files.
func findSources(cmd *cobra.Command, f *packFlags, srcs []string) (_ *found, err error) {
	all := &found{srcs: srcs, close: func() {}}
	if err := checkStdin(cmd, srcs); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	for i, src := range srcs {
		if src == "" {
			return nil, usagef("a source is empty: give a folder of files, or archives or files of rows")
		}
		var r *recognised
		if src == stdinName {
			r, err = all.lookAtStdin(cmd, f)
		} else {
			r, err = lookAt(cmd.Context(), f, src)
		}
		if err != nil {
			return nil, err
		}
		k, why := r.kind, r.why
		if r.note != "" {
			f.known(cmd.ErrOrStderr(), "%s", r.note)
		}
		all.kind = cmp.Or(all.kind, k)
		if k != all.kind {
			return nil, usagef("source %s is %s and %s is %s%s: pack one kind, then the other with --append", srcs[0], all.kind.of.One, src, k.of.One, why)
		}
		if err := r.knows(cmd, f, src); err != nil {
			return nil, err
		}
		// Folders are read by their paths, and stores and archives as files.
		if k == &filesKind && i > 0 && (len(r.files) > 0) != (len(all.files) > 0) {
			return nil, usagef("of the sources %s and %s one is a folder on this machine and one is not: pack the one, then the other with --append", srcs[0], src)
		}
		all.files, all.why = append(all.files, r.files...), all.why+why
	}
	f.knownSplits(cmd.ErrOrStderr(), all.splits())
	return all, nil
}

// splits returns the splits that the names of the sources say, below the folder of all of them.
func (all *found) splits() recognise.Splits {
	var names []string
	switch {
	case all.kind == &datasetKind: // made to be joined
	case all.kind == &filesKind:
		for _, src := range all.srcs {
			names = append(names, filepath.ToSlash(src)+"/")
		}
	default:
		for _, in := range all.files {
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

// checkTarget rejects a target inside a folder of sources, which a later pack would take for a
// source. It also rejects folders of files that do not exist.
func (all *found) checkTarget(ctx context.Context, target string) error {
	if all.kind == &datasetKind {
		return checkDatasets(ctx, all.srcs, target)
	}
	var folders []string
	for _, src := range all.srcs {
		if src == stdinName {
			continue
		}
		if place, _, _ := strings.Cut(src, "?"); strings.Contains(place, "://") {
			to, _, _ := strings.Cut(target, "?")
			if strings.HasPrefix(strings.TrimRight(to, "/")+"/", strings.TrimRight(place, "/")+"/") {
				return usagef("%s is inside the source %s and would be packed into itself: choose another place", to, place)
			}
			continue
		}
		if info, err := os.Stat(src); all.kind == &filesKind && len(all.files) == 0 || err == nil && info.IsDir() {
			folders = append(folders, src)
		}
	}
	return checkSources(folders, target)
}

// intoItself rejects a target inside a folder or a data set of the sources, none of which it lists.
func intoItself(ctx context.Context, srcs []string, target string) error {
	for _, src := range srcs {
		if _, err := os.Stat(filepath.Join(src, format.ManifestName)); err == nil {
			if err := checkDatasets(ctx, []string{src}, target); err != nil {
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

// knows rejects flags that do not apply to this kind.
func (r *recognised) knows(cmd *cobra.Command, f *packFlags, src string) error {
	k := r.kind
	for _, other := range allKinds() {
		for _, flag := range other.flags {
			if flag == "attr" && len(f.rows.attributes) == 0 { // arrays have lengths in sources of all kinds
				continue
			}
			applied := r.folder && (flag == "include" || flag == "exclude")
			if cmd.Flags().Changed(flag) && !slices.Contains(k.flags, flag) && !applied {
				return usagef("--%s is for %s, and source %s is %s%s: %s", flag, whoKnows(flag), src, k.of.One, r.why, cmp.Or(k.instead[flag], k.instead[""]))
			}
		}
	}
	return nil
}

func whoKnows(flag string) string {
	var names []string
	for _, k := range allKinds() {
		if slices.Contains(k.flags, flag) {
			names = append(names, k.of.Many)
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return names[0]
}

// lookAt finds the kind of one source, and its files.
func lookAt(ctx context.Context, f *packFlags, src string) (*recognised, error) {
	if is, err := isDataset(ctx, src); is || err != nil {
		return &recognised{kind: &datasetKind}, err
	}
	if strings.Contains(src, "://") {
		return lookAtStore(ctx, f, src)
	}
	return lookAtDisk(ctx, f, src)
}

// checkSources rejects sources that contain the target, and sources that are not folders.
func checkSources(srcs []string, target string) error {
	abs, err := realPath(target)
	if err != nil {
		return err
	}
	for _, s := range srcs {
		info, err := os.Stat(s)
		if err != nil {
			if os.IsNotExist(err) {
				return noSource(s)
			}
			return err
		}
		if !info.IsDir() {
			return usagef("source %s is a part of a sample: give its folder with --include '*%s'; files that hold samples are %s", s, filepath.Ext(s), kindNames())
		}
		src, err := realPath(s)
		if err != nil {
			return err
		}
		if within(src, abs) && !strings.Contains(target, "://") {
			return usagef("%s is inside the source %s and would be packed into itself: choose another place", target, s)
		}
	}
	return nil
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
func isDataset(ctx context.Context, src string) (bool, error) {
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
	store, _, err := dataset(ctx, src)
	if err != nil {
		return false, err
	}
	text, _, err := objstore.ReadAll(ctx, store, format.ManifestName, 64<<20)
	return err == nil && isSummary(text), ctx.Err() // if it cannot be read, listing gives the better error
}

// isSummary reports whether a text is the manifest of a data set, even of a version that this one
// does not read.
func isSummary(text []byte) bool {
	_, err := sections.DecodeSummary(text)
	return err == nil || errors.Is(err, format.ErrVersion)
}

// checkDatasets refuses to pack a data set into itself. An empty target passes.
func checkDatasets(ctx context.Context, srcs []string, target string) error {
	if target == "" {
		return nil
	}
	for _, src := range srcs {
		addr, _ := open.CutView(src)
		addr, _, _ = open.CutGeneration(addr)
		same := false
		if from, err := realPath(addr); err == nil && !strings.Contains(addr, "://") && !strings.Contains(target, "://") {
			to, err := realPath(target)
			same = err == nil && within(from, to)
		} else if from, _, err := dataset(ctx, addr); err == nil {
			to, _, err := dataset(ctx, target)
			same = err == nil && strings.TrimSuffix(from.String(), "/") == strings.TrimSuffix(to.String(), "/")
		}
		if same {
			return usagef("the data set %s would be packed into itself: choose another destination", src)
		}
	}
	return nil
}
