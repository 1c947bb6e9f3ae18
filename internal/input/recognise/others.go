package recognise

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/objstore"
)

// mostOthers is how many objects Others looks at, and mostDescribing how many files may describe a
// data set.
const mostOthers, mostDescribing = 10_000, 16

// Others returns the name of a file that is no part of a data set, from the files of a store. It is
// empty if there is no such file, if a few files merely describe others, such as README.md, and if
// the store cannot be listed, of which writing knows more.
func Others(ctx context.Context, store objstore.Store) string {
	seen, describing := 0, 0
	for info, err := range store.List(ctx, "") {
		if seen++; err != nil || seen > mostOthers {
			break
		}
		name := info.Name
		if globs.Hidden(name) || names.LikeOurs(name) || strings.HasPrefix(name, names.LabelFolder) ||
			strings.HasPrefix(name, names.LayerFolder) {
			continue
		}
		if strings.Contains(name, "/") || !Describes(name) {
			return name
		}
		if describing++; describing > mostDescribing {
			return name
		}
	}
	return ""
}

// documents are endings of files that hold no samples of a kind here.
var documents = []string{".json", ".docx", ".xlsx", ".pdf", ".html", ".md", ".yaml", ".pkl", ".pt"}

// LikeFile reports whether an address, which is to be a folder, ends as the name of a file does. An
// address with a slash at its end does not.
func LikeFile(addr string) bool {
	low := strings.ToLower(path.Base(addr))
	return !strings.HasSuffix(addr, "/") &&
		(OfName(low) != nil || slices.ContainsFunc(documents, func(end string) bool { return strings.HasSuffix(low, end) }))
}
