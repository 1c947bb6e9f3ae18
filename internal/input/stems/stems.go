// Package stems finds what the keys of a file's samples begin with.
package stems

import (
	"fmt"
	"path"
	"strings"
)

// Of returns the stem of each file: its name without the first of suffixes that it ends in,
// preceded by as many folders as it takes to tell the files apart. A path that occurs twice is an
// error.
func Of(paths []string, suffixes ...string) ([]string, error) {
	parts := make([][]string, len(paths))
	for i, shown := range paths {
		parts[i] = elements(shown, suffixes)
	}
	for depth := 1; ; depth++ {
		stems, seen := make([]string, len(paths)), map[string]bool{}
		same, longer := -1, false
		for i, p := range parts {
			stems[i] = strings.Join(p[max(0, len(p)-depth):], "/")
			longer = longer || len(p) > depth
			if seen[stems[i]] && same < 0 {
				same = i
			}
			seen[stems[i]] = true
		}
		if same < 0 {
			return stems, nil
		}
		if !longer {
			return nil, fmt.Errorf("%s is given twice", paths[same])
		}
	}
}

// Apart is like Of, but the files keep their suffixes where they differ in nothing else.
func Apart(paths []string, suffixes ...string) ([]string, error) {
	list, err := Of(paths, suffixes...)
	if err != nil {
		list, err = Of(paths)
	}
	return list, err
}

// elements returns the elements of a path or URL. The last one has no suffix.
func elements(shown string, suffixes []string) (out []string) {
	name := strings.TrimLeft(path.Clean(strings.ReplaceAll(shown, "\\", "/")), "/")
	if _, rest, ok := strings.Cut(name, ":/"); ok { // the scheme of a URL
		name = strings.TrimLeft(rest, "/")
	}
	for _, suffix := range suffixes {
		if rest, ok := strings.CutSuffix(name, suffix); ok && path.Base(rest) != "." && rest != "" {
			name = rest
			break
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if element != "." && element != ".." && element != "" {
			out = append(out, element)
		}
	}
	return out
}
