package az

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// snapshot begins the ID of a snapshot.
const snapshot = "snapshot:"

// listVersions implements objstore.Traits.ListVersions: versions, snapshots, and what is
// soft-deleted, if the account keeps any
// (https://learn.microsoft.com/rest/api/storageservices/list-blobs). Accounts with a hierarchical
// namespace keep no versions.
func (s *Store) listVersions(ctx context.Context, prefix string) iter.Seq2[objstore.Version, error] {
	return func(yield func(objstore.Version, error) bool) {
		s.Reader.ListVersions(ctx, s.Prefix, prefix,
			func(ctx context.Context, prefix, token string) (page []objstore.Version, next string, err error) {
				list, err := s.enumerate(ctx, prefix, token, "versions,snapshots,deleted")
				for i := range list.Blobs.Blob {
					b := &list.Blobs.Blob[i]
					info, ok := b.info(prefix)
					if !ok {
						continue
					}
					v := objstore.Version{Info: info, ID: cmp.Or(b.VersionID, "soft-deleted")}
					if b.Snapshot != "" {
						v.ID = snapshot + b.Snapshot
					}
					v.Current = !b.Deleted && b.Snapshot == "" && (b.IsCurrentVersion || b.VersionID == "")
					if b.Deleted {
						v.Until = time.Now().AddDate(0, 0, b.Properties.RemainingDays+1)
					}
					page = append(page, v)
				}
				if a, ok := errors.AsType[ranged.Answer](err); ok && a.Status == http.StatusBadRequest {
					err = fmt.Errorf("%w: the account lists no versions: %w", objstore.ErrKept, err)
				}
				return page, list.NextMarker, err
			}, yield)
	}
}

// deleteVersion implements objstore.Traits.DeleteVersion.
func (s *Store) deleteVersion(ctx context.Context, name, id string) error {
	key, err := s.Key(ctx, name)
	if err == nil {
		query := url.Values{"versionid": {id}}
		if at, ok := strings.CutPrefix(id, snapshot); ok {
			query = url.Values{"snapshot": {at}}
		}
		err = s.Reader.Do(ctx, func(ctx context.Context) error {
			_, err := s.do(ctx, "delete version", http.MethodDelete, key, query, nil, nil)
			return err
		})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.Fail("delete version "+id+" of", name, err)
}
