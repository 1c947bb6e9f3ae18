package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/format"
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
			return usagef("source %s is a file: give the folder that holds the samples' files", s)
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
