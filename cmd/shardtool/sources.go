package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/shardtool/shardtool/internal/fused"
	"github.com/shardtool/shardtool/internal/recognise"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tar"
)

// filesKind is folders whose files are fields of samples.
var filesKind = kind{
	of:      &recognise.Kind{One: "a folder of files", Many: "folders of files"},
	flags:   []string{"include", "exclude", "class-field", "pack-shuffle"},
	instead: map[string]string{"": "leave it out, or name the files in the folder that have columns, as in 'DIR/**/*.parquet'"},
	open:    openFiles,
}

// tarKind is tar archives of samples.
var tarKind = kind{
	of: recognise.Tar,
	instead: map[string]string{
		"pack-shuffle": "they are read from front to back; extract them to a folder to shuffle them, or rely on the shuffle when reading",
		"class-field":  "their fields come as they are",
		"":             "extract what is wanted",
	},
	open: openArchives,
}

// zipKind is zip archives, which are read as folders of what they contain.
var zipKind = kind{of: recognise.Zip}

func openArchives(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	plain := true
	for _, in := range found.files {
		plain = plain && strings.HasSuffix(strings.ToLower(cmp.Or(in.As, in.Name)), ".tar")
	}
	opt := tar.Options{MemberMemory: max(f.opt.Memory, 64<<20)}
	if !f.firstDot && !f.examine {
		opt.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	src, err := tar.New(ctx, found.files, opt)
	if err != nil {
		return nil, 0, err
	}
	_, size := src.Total()
	if text := plural(len(found.files), "archive"); size > 0 {
		f.known(stderr, "%s, %s", text, bytesText(uint64(size)))
	} else { // of standard input
		f.known(stderr, "%s", text)
	}
	if !plain {
		size = 0 // their content is not known in advance
	}
	return src, size, nil
}

func openFiles(ctx context.Context, found *found, f *packFlags, stderr io.Writer) (writer.Source, int64, error) {
	listing := newProgress(stderr, "listing", bytesOf(0), f.quiet)
	f.files.Found = func(n int64) { listing.set(0, countText(uint64(n))+" files") }
	var src *source.Files
	var err error
	if len(found.files) > 0 {
		var stores []objstore.Store
		for _, in := range found.files {
			stores = append(stores, in.Store)
		}
		src, err = source.NewObjects(ctx, stores, f.files)
	} else {
		src, err = source.NewFiles(ctx, found.srcs, f.files)
	}
	listing.end()
	if err != nil {
		return nil, 0, err
	}
	samples, size := src.Total()
	without := ""
	if src.Hidden+src.Filtered > 0 {
		without = fmt.Sprintf(" (left out: %d hidden, %d by --include and --exclude)", src.Hidden, src.Filtered)
	}
	f.known(stderr, "%s, %s of files%s", plural(samples, "sample"), bytesText(uint64(size)), without)
	if samples == 0 {
		src.Close()
		why := "there are no files: check the path"
		if src.Filtered > 0 {
			why = "--include and --exclude leave out all files"
		} else if src.Hidden > 0 {
			why = "the names of all files begin with a dot: --include '.*' packs them too"
		}
		return nil, 0, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack; %s", writer.ErrEmpty, strings.Join(found.srcs, ", "), why)}
	}
	if err := f.checkFused(stderr, found.srcs, &src.Fused); err != nil {
		src.Close()
		return nil, 0, err
	}
	return src, size, nil
}

// checkFused refuses folders in which the rule of the first dot fuses files that look like samples
// of their own, and warns where there are few samples for so many files.
func (f *packFlags) checkFused(stderr io.Writer, srcs []string, of *fused.Watch) error {
	switch {
	case f.firstDot || f.examine:
	case of.Key != "":
		return usagef("source %s: %s, because %s: rename them, such as the first to %s; or --sample-rule first-dot packs them like that", strings.Join(srcs, ", "), of.Example(), fused.Rule, of.Renamed())
	case of.Few():
		fmt.Fprintf(stderr, "shardtool: %s of %s: %s; look at some with `shardtool doctor`\n", plural(of.Samples, "sample"), plural(of.Files, "file"), fused.Rule)
	}
	return nil
}
