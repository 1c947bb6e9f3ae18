package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tar"
)

// checkSources refuses what would pack a data set into itself, and kinds of sources this version does not read.
func checkSources(srcs []string, target string) error {
	abs, err := realPath(target)
	if err != nil {
		return err
	}
	for _, s := range srcs {
		if s == "" {
			return usagef("a source is empty: give the folder that holds the samples' files")
		}
		info, err := os.Stat(s)
		if err != nil {
			if os.IsNotExist(err) {
				return &exitError{exitNotFound, fmt.Errorf("source %s: %w", s, fs.ErrNotExist)}
			}
			return err
		}
		if !info.IsDir() {
			return usagef("source %s is a file: give the folder that holds the samples' files, or archives that end in .tar, .tar.gz, .tgz or .tar.zst", s)
		}
		src, err := realPath(s)
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(src, abs); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return usagef("%s is inside the source %s and would be packed into itself: choose another place", target, s)
		}
		if text, err := os.ReadFile(filepath.Join(s, format.ManifestName)); err == nil {
			if _, err := format.DecodeSummary(text); err == nil {
				return usagef("source %s is a data set: this version packs files; `shardtool cat %s | tar -x -C DIR` makes them", s, s)
			}
		}
	}
	return nil
}

// realPath follows links as far as the path exists.
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

// findArchives lists the archives that sources stand for; nil when they are no archives.
func findArchives(srcs []string) (archives []string, err error) {
	var other string
	for _, s := range srcs {
		if _, err := os.Lstat(s); err == nil || !strings.ContainsAny(s, "{*?[") {
			if info, err := os.Stat(s); tar.Is(s) && (err != nil || !info.IsDir()) {
				archives = append(archives, s)
			} else {
				other = s
			}
			continue
		}
		paths, err := tar.Expand(s)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotFound, err}
		}
		if err != nil {
			return nil, usagef("%w", err)
		}
		for _, p := range paths {
			if !tar.Is(p) {
				return nil, usagef("source %s stands for %s, among others: globs and braces are for archives; name folders one by one", s, p)
			}
		}
		archives = append(archives, paths...)
	}
	if archives != nil && other != "" {
		return nil, usagef("%s is an archive and %s is none: pack one kind, then the other with --append", archives[0], other)
	}
	return archives, nil
}

// filesOnly are flags that choose among files of folders.
var filesOnly = []string{"include", "exclude", "class-field", "pack-shuffle"}

// onlyForFiles refuses them for other kinds of sources; instead says what to do.
func onlyForFiles(cmd *cobra.Command, kind string, instead func(flag string) string) error {
	for _, flag := range filesOnly {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for folders of files, not for %s: %s", flag, kind, instead(flag))
		}
	}
	return nil
}

func notForArchives(cmd *cobra.Command) error {
	return onlyForFiles(cmd, "archives", func(flag string) string {
		switch flag {
		case "pack-shuffle":
			return "they are read from front to back; extract them to a folder to shuffle them, or rely on the shuffle when reading"
		case "class-field":
			return "their fields come as they are"
		}
		return "extract what is wanted"
	})
}

func allPlain(archives []string) bool {
	return !slices.ContainsFunc(archives, func(a string) bool { return !strings.HasSuffix(strings.ToLower(a), ".tar") })
}

func openArchives(ctx context.Context, archives []string, f *packFlags, stderr io.Writer) (writer.Source, error) {
	src, err := tar.New(ctx, archives, tar.Options{MemberMemory: max(f.opt.Memory, 64<<20)})
	if err != nil {
		return nil, err
	}
	if _, size := src.Total(); !f.quiet {
		fmt.Fprintf(stderr, "found %s, %s\n", plural(len(archives), "archive"), bytesText(uint64(size)))
	}
	return src, nil
}

func openFiles(ctx context.Context, srcs []string, f *packFlags, stderr io.Writer) (writer.Source, error) {
	listing := newProgress(stderr, "listing", 0, f.quiet)
	f.files.Found = func(n int64) { listing.set(0, countText(uint64(n))+" files") }
	src, err := source.NewFiles(ctx, srcs, f.files)
	listing.end()
	if err != nil {
		return nil, err
	}
	samples, size := src.Total()
	left := src.Left()
	if !f.quiet {
		fmt.Fprintf(stderr, "found %s, %s of files", plural(samples, "sample"), bytesText(uint64(size)))
		if left.Hidden+left.Filtered > 0 {
			fmt.Fprintf(stderr, " (left out: %d hidden, %d by --include and --exclude)", left.Hidden, left.Filtered)
		}
		fmt.Fprintln(stderr)
	}
	if samples == 0 {
		src.Close()
		return nil, &exitError{exitNotFound, fmt.Errorf("%w in %s: nothing to pack; look at --include and --exclude", writer.ErrEmpty, strings.Join(srcs, ", "))}
	}
	return src, nil
}
