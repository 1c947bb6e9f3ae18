package hub

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// List requests all pages of the folder that prefix names before it yields the first object, because
// the Hub lists the files of a tree in another order.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		found, err := s.list(ctx, prefix)
		for _, info := range found {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(info, nil) {
				return
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(objstore.Info{}, s.fail("list", prefix, err))
		}
	}
}

// entry is a file or a folder of a tree.
type entry struct {
	Type, Path, OID string
	Size            int64
	LFS             *struct { // of files in LFS or Xet
		OID  string
		Size int64
	}
}

var nextPage = regexp.MustCompile(`<([^>]*)>[^,]*;\s*rel="?next`)

func (s *store) list(ctx context.Context, prefix string) ([]objstore.Info, error) {
	if err := s.pin(ctx); err != nil {
		return nil, err
	}
	full := s.prefix + prefix
	folder := full[:max(0, strings.LastIndexByte(full, '/'))]
	if folder != "" && checkName(folder) != nil {
		return nil, nil // no file has such a name
	}
	u := s.endpoint.JoinPath("api/datasets", s.repo, "tree", s.commit)
	if folder != "" {
		u = u.JoinPath(url.PathEscape(folder))
	}
	u.RawQuery = "recursive=true"
	var found []objstore.Info
	for asked := map[string]bool{}; u.RawQuery != ""; {
		if asked[u.RawQuery] {
			return nil, errors.New("the Hub lists the same page twice; check HF_ENDPOINT")
		}
		asked[u.RawQuery] = true
		var page []entry
		var header http.Header
		err := s.reader.Do(ctx, func(ctx context.Context) (err error) {
			page = nil
			header, err = s.ask(ctx, u, &page)
			return err
		})
		if errors.Is(err, errNoEntry) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if e.LFS != nil {
				e.OID, e.Size = e.LFS.OID, e.LFS.Size
			}
			if e.Type != "file" || !strings.HasPrefix(e.Path, full) {
				continue
			}
			info := objstore.Info{Name: e.Path[len(s.prefix):], Size: e.Size, ETag: e.OID}
			if s.check(ctx, info.Name) == nil && info.Size >= 0 {
				found = append(found, info)
			}
		}
		u.RawQuery = nextQuery(header)
	}
	slices.SortFunc(found, func(a, b objstore.Info) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(found, func(a, b objstore.Info) bool { return a.Name == b.Name }), nil
}

// nextQuery returns the query of the next page, or "". The rest of its address may be the one of
// another server than HF_ENDPOINT.
func nextQuery(header http.Header) string {
	for _, link := range header.Values("Link") {
		if found := nextPage.FindStringSubmatch(link); found != nil {
			if u, err := url.Parse(found[1]); err == nil {
				return u.RawQuery
			}
		}
	}
	return ""
}
