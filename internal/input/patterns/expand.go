package patterns

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/internal/sys/plain"
)

// maxExpanded bounds the number of names that a pattern expands to.
const maxExpanded = 1 << 20

// Expand expands a pattern on the local disk: first braces, as in train-{000000..000099}.tar or
// {train,val}.tar, then globs, in which ** crosses folders. A name without a glob is returned
// whether the file exists or not. A glob returns the files that match, without folders and those
// that globs.Passes leaves out, sorted, and must match at least one. left accounts for those.
func Expand(pattern string) (paths []string, left *tally.Tally, err error) {
	left = new(tally.Tally)
	words, err := Braces(pattern)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range words {
		if !strings.ContainsAny(w, "*?[") {
			paths = append(paths, w)
			continue
		}
		found, err := doublestar.FilepathGlob(w, doublestar.WithFilesOnly())
		if err != nil {
			return nil, nil, fmt.Errorf("%q: %w", w, err)
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("nothing is named like %q: check the path%w", w, plain.Silent(fs.ErrNotExist))
		}
		base := w[:strings.LastIndexByte(w[:strings.IndexAny(w, "*?[")], '/')+1]
		passed := ""
		found = slices.DeleteFunc(found, func(name string) bool {
			pass := globs.Passes(strings.TrimPrefix(w, base), strings.TrimPrefix(filepath.ToSlash(name), base))
			if pass {
				passed = cmp.Or(passed, name)
				left.Listed++
				left.Leave(tally.Hidden, name)
			}
			return pass
		})
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("%q matches only names such as %s, which begin with a dot or an underscore, as those of hidden and unfinished files do: write the mark in the pattern%w", w, passed, plain.Silent(fs.ErrNotExist))
		}
		slices.Sort(found)
		if paths = append(paths, found...); len(paths) > maxExpanded {
			return nil, nil, fmt.Errorf("%q expands to more than %d files", pattern, maxExpanded)
		}
	}
	left.Listed += int64(len(paths))
	return paths, left, nil
}

// Braces expands the braces of a pattern and keeps its globs. The first pair of braces varies
// slowest.
func Braces(pattern string) ([]string, error) {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}, nil
	}
	length := strings.IndexByte(pattern[open:], '}')
	if length < 0 {
		return nil, fmt.Errorf("%q: a { without }", pattern)
	}
	inner := pattern[open+1 : open+length]
	if strings.Contains(inner, "{") {
		return nil, fmt.Errorf("%q: nested braces are not supported", pattern)
	}
	words, err := alternatives(inner)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", pattern, err)
	}
	rest, err := Braces(pattern[open+length+1:])
	if err != nil {
		return nil, err
	}
	if len(words)*len(rest) > maxExpanded {
		return nil, fmt.Errorf("%q expands to more than %d files", pattern, maxExpanded)
	}
	var all []string
	for _, w := range words {
		for _, r := range rest {
			all = append(all, pattern[:open]+w+r)
		}
	}
	return all, nil
}

// alternatives expands the content of braces: a..b, as wide as the wider of the two if one of them
// begins with 0, or words separated by commas.
func alternatives(inner string) ([]string, error) {
	first, last, ok := strings.Cut(inner, "..")
	if !ok {
		return strings.Split(inner, ","), nil
	}
	from, err := strconv.ParseUint(first, 10, 63)
	to, err2 := strconv.ParseUint(last, 10, 63)
	if err != nil || err2 != nil || from > to || to-from >= maxExpanded {
		return nil, fmt.Errorf("{%s}: give numbers in ascending order, as in {000000..000099}", inner)
	}
	width := 0
	if (len(first) > 1 && first[0] == '0') || (len(last) > 1 && last[0] == '0') {
		width = max(len(first), len(last))
	}
	var words []string
	for n := from; n <= to; n++ {
		words = append(words, fmt.Sprintf("%0*d", width, n))
	}
	return words, nil
}
