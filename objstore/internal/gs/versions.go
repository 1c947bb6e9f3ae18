package gs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// listVersions implements objstore.Traits.ListVersions. The versions are generations. Soft deletion
// (https://cloud.google.com/storage/docs/soft-delete) keeps what was deleted for days, and has a
// list of its own. Parts of uploads stay where a bucket has a retention policy.
func (s *Store) listVersions(ctx context.Context, prefix string) iter.Seq2[objstore.Version, error] {
	return func(yield func(objstore.Version, error) bool) {
		if s.Reader.ListVersions(ctx, s.Prefix, prefix, s.versionPager("versions"), yield) {
			s.Reader.ListVersions(ctx, s.Prefix, prefix, s.softDeleted(s.versionPager("softDeleted")), yield)
		}
	}
}

// versionPager returns the pager of the lists that a parameter asks for.
func (s *Store) versionPager(which string) ranged.VersionPager {
	return func(ctx context.Context, prefix, token string) (page []objstore.Version, next string, err error) {
		query := url.Values{"prefix": {prefix}, "maxResults": {"1000"}, which: {"true"},
			"fields": {"nextPageToken,items(name,size,generation,updated,timeCreated,timeDeleted,softDeleteTime,hardDeleteTime)"}}
		if token != "" {
			query.Set("pageToken", token)
		}
		var list struct {
			NextPageToken string
			Items         []struct {
				resource
				TimeCreated, TimeDeleted, SoftDeleteTime, HardDeleteTime time.Time
			}
		}
		if err := s.do(ctx, "list", http.MethodGet, s.url("", "", query), &list); err != nil {
			return nil, "", err
		}
		for _, item := range list.Items {
			v := objstore.Version{Info: item.meta().Info(item.Name), ID: item.Generation,
				Current: item.TimeDeleted.IsZero() && item.SoftDeleteTime.IsZero()}
			switch soft := !item.SoftDeleteTime.IsZero(); {
			case soft != (which == "softDeleted"): // an emulator does not know the parameter
				continue
			case soft && item.HardDeleteTime.IsZero():
				v.Until = item.SoftDeleteTime
			case soft:
				v.Until = item.HardDeleteTime
			case v.Current && objstore.IsPart(item.Name):
				v.Current = false
				if end := item.TimeCreated.Add(partLife); time.Now().Before(end) {
					v.Until = end
				}
			}
			page = append(page, v)
		}
		return page, list.NextPageToken, nil
	}
}

// softDeleted returns the pager of the soft-deleted objects. Buckets without soft deletion may refuse
// that list, and who may list objects need not be allowed to see it.
func (s *Store) softDeleted(ask ranged.VersionPager) ranged.VersionPager {
	return func(ctx context.Context, prefix, token string) ([]objstore.Version, string, error) {
		page, next, err := ask(ctx, prefix, token)
		if a, ok := errors.AsType[ranged.Answer](err); ok {
			if a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized {
				return nil, "", fmt.Errorf("%w: soft-deleted objects are not listed: %w", objstore.ErrKept, err)
			}
			return nil, "", nil
		}
		return page, next, err
	}
}

// deleteVersion implements objstore.Traits.DeleteVersion.
func (s *Store) deleteVersion(ctx context.Context, name, id string) error {
	key, err := s.Key(ctx, name)
	if err == nil {
		err = s.Reader.Do(ctx, func(ctx context.Context) error {
			return s.do(ctx, "delete version", http.MethodDelete, s.url("", key, url.Values{"generation": {id}}), nil)
		})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.Fail("delete version "+id+" of", name, err)
}
