package inputs

import (
	"fmt"
	"path"
	"strings"
)

// SetStems sets the Stem of each file: its name without the first of suffixes that it ends in,
// preceded by as many folders as it takes to tell the files apart. An input that occurs twice is an
// error.
func SetStems(files []File, suffixes ...string) error {
	parts := make([][]string, len(files))
	for i := range files {
		parts[i] = elements(files[i].Path, suffixes)
	}
	for depth := 1; ; depth++ {
		seen := map[string]bool{}
		same, longer := -1, false
		for i, p := range parts {
			stem := strings.Join(p[max(0, len(p)-depth):], "/")
			longer = longer || len(p) > depth
			if seen[stem] && same < 0 {
				same = i
			}
			seen[stem], files[i].Stem = true, stem
		}
		if same < 0 {
			return nil
		}
		if !longer {
			return fmt.Errorf("%s is given twice", files[same].Path)
		}
	}
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
