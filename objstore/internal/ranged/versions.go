package ranged

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// VersionPager requests one page of the versions of objects whose keys begin with prefix, without a
// retry of its own. Their names are the keys. token is "" for the first page, and next is the token
// of the next one or "". It returns the same errors as a [Getter].
type VersionPager func(ctx context.Context, prefix, token string) (page []objstore.Version, next string, err error)

// ListVersions yields the versions of the objects below the prefix of the store, whose names begin
// with prefix. It reports whether yield wants more.
func (r *Reader) ListVersions(ctx context.Context, below, prefix string, ask VersionPager,
	yield func(objstore.Version, error) bool) (more bool) {
	fail := func(err error) bool {
		yield(objstore.Version{}, r.Fail("list the versions of", prefix, err))
		return false
	}
	for token := ""; ; {
		var page []objstore.Version
		var next string
		err := r.Do(ctx, func(ctx context.Context) (err error) {
			page, next, err = ask(ctx, below+prefix, token)
			return err
		})
		if err != nil {
			return fail(err)
		}
		SortVersions(page)
		for _, v := range page {
			name, ours := strings.CutPrefix(v.Name, below)
			if v.Name = name; ours && CheckName(name) == nil && !yield(v, nil) {
				return false
			}
		}
		if next == "" {
			return true
		}
		if next == token {
			return fail(errors.New("the server does not go on after a page; use one that lists in pages"))
		}
		token = next
	}
}

// SortVersions orders the versions of a page name by name, the newest first.
func SortVersions(page []objstore.Version) {
	slices.SortStableFunc(page, func(a, b objstore.Version) int {
		switch {
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		case a.Current:
			return -1
		case b.Current:
			return 1
		}
		return b.ModTime.Compare(a.ModTime)
	})
}
