package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inputs"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// kind is a kind of source that pack can read.
type kind struct {
	// name and one are for messages: "Parquet files", "a Parquet file".
	name, one string
	// tokens reports that its files contain only token ids.
	tokens bool
	// match reports whether a file is of this kind, by its name. It is nil for folders of files and
	// for data sets.
	match func(name string) bool
	// whole reports whether a folder in which all files match is of this kind; nil means always.
	whole func(f *packFlags) bool
	// flags are those flags that apply to this kind and not to all.
	flags []string
	// instead is the advice for a flag that does not apply.
	instead func(flag string) string
	// open opens the source and prints what was found. size is the total of the progress, 0 when it is
	// not known.
	open func(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (src writer.Source, size int64, err error)
}

// fileKinds are the kinds that are recognized by the names of files, in order of precedence.
var fileKinds = []*kind{&parquetKind, &linesKind, &tarKind, &tokensKind}

// allKinds are the fileKinds, folders of files, and data sets.
func allKinds() []*kind { return append(slices.Clone(fileKinds), &filesKind, &datasetKind) }

func kindOf(name string) *kind {
	for _, k := range fileKinds {
		if k.match(name) {
			return k
		}
	}
	return nil
}

// found is the kind and the files of the sources of a pack.
type found struct {
	kind *kind
	srcs []string
	// files are those of a kind in fileKinds, in the order of srcs. For folders of files they are the
	// stores among srcs, with Store only.
	files []source.Input
	// why explains, in messages, why a folder is one of files.
	why string
	// close removes temporary files.
	close func()
}

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
	first := ""
	for _, src := range srcs {
		if src == "" {
			return nil, usagef("a source is empty: give a folder of files, or archives or files of rows")
		}
		var k *kind
		var files []source.Input
		var why string
		if src == stdinName {
			files = make([]source.Input, 1)
			k, files[0], all.close, err = f.lookAtStdin(cmd)
		} else {
			k, files, why, err = lookAt(cmd.Context(), f, src)
		}
		if err != nil {
			return nil, err
		}
		if all.kind == nil {
			all.kind, first = k, src
		}
		if k != all.kind {
			return nil, usagef("source %s is %s and %s is %s%s: pack one kind, then the other with --append", first, all.kind.one, src, k.one, why)
		}
		if err := k.knows(cmd, f, src, why); err != nil {
			return nil, err
		}
		all.files, all.why = append(all.files, files...), all.why+why
	}
	if all.kind == &filesKind && len(all.files) > 0 && len(all.files) < len(srcs) {
		return nil, usagef("some sources are folders on this machine and some are not: pack the ones, then the others with --append")
	}
	return all, nil
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
		if info, err := os.Stat(src); all.kind == &filesKind || err == nil && info.IsDir() {
			folders = append(folders, src)
		}
	}
	return checkSources(folders, target)
}

// knows rejects flags that apply only to other kinds.
func (k *kind) knows(cmd *cobra.Command, f *packFlags, src, why string) error {
	for _, other := range allKinds() {
		for _, flag := range other.flags {
			if flag == "attr" && len(f.rows.attributes) == 0 { // arrays have lengths in sources of all kinds
				continue
			}
			if cmd.Flags().Changed(flag) && !slices.Contains(k.flags, flag) {
				return usagef("--%s is for %s, and source %s is %s%s: %s", flag, whoKnows(flag), src, k.one, why, k.instead(flag))
			}
		}
	}
	return nil
}

func whoKnows(flag string) string {
	var names []string
	for _, k := range allKinds() {
		if slices.Contains(k.flags, flag) {
			names = append(names, k.name)
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return names[0]
}

// lookAt finds the kind of one source, and its files for the kinds in fileKinds. why explains, in a
// message, why a folder is not of such a kind.
func lookAt(ctx context.Context, f *packFlags, src string) (k *kind, files []source.Input, why string, err error) {
	if is, err := isDataset(ctx, src); is || err != nil {
		return &datasetKind, nil, "", err
	}
	if strings.Contains(src, "://") {
		k, files, err = lookAtStore(ctx, f, src)
	} else {
		k, files, why, err = lookAtDisk(ctx, f, src)
	}
	if err == nil && len(f.files.Include) == 0 && (k == &filesKind || k == &tokensKind) {
		err = checkLayout(ctx, src, files)
	}
	return k, files, why, err
}

// checkLayout rejects data sets of other systems, whose files are not samples. files has the store
// of a source that is not a folder of this machine.
func checkLayout(ctx context.Context, src string, files []source.Input) error {
	var l *inputs.Layout
	if strings.Contains(src, "://") {
		var err error
		if l, err = inputs.LayoutOf(ctx, files[0].Store); err != nil {
			return err
		}
	} else if info, err := os.Stat(src); err == nil && info.IsDir() {
		l = inputs.LayoutIn(ctx, src)
	}
	if l == nil {
		return nil
	}
	return usagef("source %s is %s, by its %s, and its files are not samples: docs/other-formats.md has a program that packs it; --include '**' packs its files as they are",
		src, l.Name, l.Found)
}

// sameKind returns the kind of a list of names, which must all be of the same kind.
func sameKind(src string, names []string) (*kind, error) {
	var k *kind
	for _, name := range names {
		of := kindOf(name)
		switch {
		case of == nil:
			return nil, usagef("source %s stands for %s, among others: globs and braces are for %s; name folders one by one", src, name, kindNames())
		case k == nil:
			k = of
		case k != of:
			return nil, usagef("source %s stands for %s and %s: pack one kind, then the other with --append", src, names[0], name)
		}
	}
	return k, nil
}

// kindNames lists the names of the fileKinds.
func kindNames() string {
	var names []string
	for _, k := range fileKinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// known prints how much was found.
func (f *packFlags) known(stderr io.Writer, format string, args ...any) {
	if !f.quiet {
		fmt.Fprintf(stderr, "found "+format+"\n", args...)
	}
}
