package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// List requests pages of at most 1,000 keys, each when the page before it is used up. It leaves out
// keys that are not valid names, such as the "dir/" that consoles create for folders.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.Reader.List(ctx, s.Prefix, prefix, ranged.CheckName, s.page)
}

// Traits returns the traits of all stores on networks, and ListAll.
func (s *store) Traits() objstore.Traits {
	traits := s.Objects.Traits()
	traits.ListAll = func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
		return s.Reader.List(ctx, s.Prefix, prefix, nil, s.page)
	}
	traits.ListVersions, traits.DeleteVersion = s.listVersions, s.deleteVersion
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
