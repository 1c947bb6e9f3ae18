package s3

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// listVersions implements objstore.Traits.ListVersions. A page has the versions and the marks of
// deletions of the same keys in two lists.
func (s *store) listVersions(ctx context.Context, prefix string) iter.Seq2[objstore.Version, error] {
	return func(yield func(objstore.Version, error) bool) {
		in := &s3.ListObjectVersionsInput{Bucket: &s.Bucket.Bucket, EncodingType: types.EncodingTypeUrl}
		if below := s.Prefix + prefix; below != "" {
			in.Prefix = &below
		}
		for {
			var out *s3.ListObjectVersionsOutput
			err := s.Reader.Do(ctx, func(ctx context.Context) (err error) {
				out, err = s.client.ListObjectVersions(ctx, in)
				return s.explain("list versions", err)
			})
			var page []objstore.Version
			if err == nil {
				page, err = s.versions(out)
			}
			if err != nil {
				yield(objstore.Version{}, s.Fail("list the versions of", prefix, err))
				return
			}
			for _, v := range page {
				if objstore.CheckName(v.Name) == nil && !yield(v, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			next, err := decoded(out.NextKeyMarker, out.EncodingType)
			if err == nil && (next < aws.ToString(in.KeyMarker) || next == aws.ToString(in.KeyMarker) &&
				aws.ToString(out.NextVersionIdMarker) == aws.ToString(in.VersionIdMarker)) {
				err = errors.New("the server does not go on after a page; use one that lists in pages, in ascending order of keys")
			}
			if err != nil {
				yield(objstore.Version{}, s.Fail("list the versions of", prefix, err))
				return
			}
			in.KeyMarker, in.VersionIdMarker = &next, out.NextVersionIdMarker
		}
	}
}

// versions returns the versions of a page, name by name, the newest first.
func (s *store) versions(out *s3.ListObjectVersionsOutput) (page []objstore.Version, err error) {
	add := func(key *string, v objstore.Version) {
		name, bad := decoded(key, out.EncodingType)
		if bad == nil && !strings.HasPrefix(name, s.Prefix) {
			bad = errors.New("the server lists a key that does not begin with the prefix asked for")
		}
		if err == nil {
			err = bad
		}
		v.Name = strings.TrimPrefix(name, s.Prefix)
		page = append(page, v)
	}
	for _, v := range out.Versions {
		add(v.Key, objstore.Version{Info: objstore.Info{Size: aws.ToInt64(v.Size), ETag: plainTag(v.ETag),
			ModTime: aws.ToTime(v.LastModified)},
			ID: aws.ToString(v.VersionId), Current: aws.ToBool(v.IsLatest)})
	}
	for _, m := range out.DeleteMarkers {
		add(m.Key, objstore.Version{Info: objstore.Info{ModTime: aws.ToTime(m.LastModified)},
			ID: aws.ToString(m.VersionId), Current: aws.ToBool(m.IsLatest), Mark: true})
	}
	ranged.SortVersions(page)
	return page, err
}

// deleteVersion implements objstore.Traits.DeleteVersion.
func (s *store) deleteVersion(ctx context.Context, name, id string) error {
	key, err := s.Key(ctx, name)
	if err == nil {
		err = s.Reader.Do(ctx, func(ctx context.Context) error {
			_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.Bucket.Bucket, Key: &key,
				VersionId: &id})
			return s.explain("delete version", err)
		})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.Fail("delete version "+id+" of", name, err)
}

// mostDeleted is how many versions a request may delete.
const mostDeleted = 1000

// deleteVersions implements objstore.Traits.DeleteVersions. A server that refuses the request, as
// some do that want another checksum of it, has deleted none.
func (s *store) deleteVersions(ctx context.Context, some []objstore.Version) (gone []bool, err error) {
	gone = make([]bool, len(some))
	for first := 0; first < len(some); first += mostDeleted {
		last := min(first+mostDeleted, len(some))
		in := &s3.DeleteObjectsInput{Bucket: &s.Bucket.Bucket, Delete: &types.Delete{}}
		at := map[[2]string]int{}
		for i := first; i < last; i++ {
			key, err := s.Key(ctx, some[i].Name)
			if err != nil {
				return gone, s.Fail("delete versions of", some[i].Name, err)
			}
			at[[2]string{key, some[i].ID}] = i
			in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: &key, VersionId: &some[i].ID})
		}
		var out *s3.DeleteObjectsOutput
		refused := false
		err := s.Reader.Do(ctx, func(ctx context.Context) (err error) {
			out, err = s.client.DeleteObjects(ctx, in)
			_, refused = s.answerOf(err)
			return s.explain("delete version", err)
		})
		if refused && ctx.Err() == nil {
			return gone, nil
		}
		if err != nil {
			return gone, s.Fail("delete versions of", some[first].Name, err)
		}
		for i := range out.Deleted {
			d := &out.Deleted[i]
			if i, ok := at[[2]string{aws.ToString(d.Key), aws.ToString(d.VersionId)}]; ok {
				gone[i] = true
			}
		}
	}
	return gone, nil
}
