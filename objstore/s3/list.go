package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// List requests pages of at most 1,000 keys, each when the page before it is used up. It leaves out
// keys that are not valid names, such as the "dir/" that consoles create for folders.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.list(ctx, prefix, ranged.CheckName)
}

func (s *store) list(ctx context.Context, prefix string, check func(string) error) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		ask := s.page
		if s.directory {
			ask = s.unordered()
		}
		s.Reader.List(ctx, s.Prefix, prefix, check, ask)(yield)
	}
}

// directoryBucket ends the names of directory buckets, which have one or more zones before it:
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/directory-bucket-naming-rules.html.
const directoryBucket = "--x-s3"

// unordered returns a [ranged.Pager] for a directory bucket. Those list keys in no order and accept
// only prefixes that end in a slash, so the objects of all pages come sorted, as the last page:
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html.
func (s *store) unordered() ranged.Pager {
	var all []objstore.Info
	return func(ctx context.Context, prefix, token string) ([]objstore.Info, string, error) {
		page, next, err := s.page(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1], token)
		if err != nil {
			return nil, "", err
		}
		for _, info := range page {
			if strings.HasPrefix(info.Name, prefix) {
				all = append(all, info)
			}
		}
		if next != "" {
			return nil, next, nil
		}
		slices.SortFunc(all, func(a, b objstore.Info) int { return strings.Compare(a.Name, b.Name) })
		return all, "", nil
	}
}

// Traits returns the traits of all stores on networks, ListAll, and the versions, which directory
// buckets do not keep.
func (s *store) Traits() objstore.Traits {
	traits := s.Objects.Traits()
	traits.ListAll = func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
		return s.list(ctx, prefix, nil)
	}
	traits.CheckWrites = s.checkWrites
	if traits.Versions = !s.directory; traits.Versions {
		traits.ListVersions, traits.DeleteVersion, traits.DeleteVersions = s.listVersions, s.deleteVersion, s.deleteVersions
	}
	return traits
}

// page implements ranged.Pager.
func (s *store) page(ctx context.Context, prefix, token string) (page []objstore.Info, next string, err error) {
	in := &s3.ListObjectsV2Input{
		Bucket: &s.Bucket.Bucket,
		// Keys may contain bytes that XML cannot represent.
		EncodingType: types.EncodingTypeUrl,
	}
	if prefix != "" {
		in.Prefix = &prefix
	}
	if token != "" {
		in.ContinuationToken = &token
	}
	out, err := s.client.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, "", s.explain("list", err)
	}
	s.found.Store(true)
	page = make([]objstore.Info, 0, len(out.Contents))
	for _, object := range out.Contents {
		key, err := decoded(object.Key, out.EncodingType)
		if err != nil {
			return nil, "", err
		}
		page = append(page, objstore.Info{
			Name: key, Size: aws.ToInt64(object.Size), ETag: plainTag(object.ETag),
			ModTime: aws.ToTime(object.LastModified),
		})
	}
	if !aws.ToBool(out.IsTruncated) {
		return page, "", nil
	}
	if aws.ToString(out.NextContinuationToken) == "" {
		return nil, "", errors.New("the server lists more keys than it returns and gives no token for the next page; use one that lists in pages")
	}
	return page, *out.NextContinuationToken, nil
}

// decoded returns a key of a list.
func decoded(key *string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return aws.ToString(key), nil
	}
	plain, err := url.QueryUnescape(aws.ToString(key))
	if err != nil {
		return "", fmt.Errorf("the server lists a key that is not URL-encoded as declared: %.100q", aws.ToString(key))
	}
	return plain, nil
}
