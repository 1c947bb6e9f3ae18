package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/shardtool/shardtool/objstore"
)

// List requests pages of at most 1,000 keys, each when the page before it is used up. It leaves out
// keys that are not valid names, such as the "dir/" that consoles create for folders.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(objstore.Info{}, s.fail("list", prefix, err))
			return
		}
		if len(s.prefix)+len(prefix) > objstore.MaxNameLen {
			return // no key is that long
		}
		l := lister{store: s, prefix: s.prefix + prefix}
		for more := true; more; {
			page, err := l.next(ctx)
			if err != nil {
				yield(objstore.Info{}, s.fail("list", prefix, err))
				return
			}
			for _, info := range page {
				if err := ctx.Err(); err != nil {
					yield(objstore.Info{}, s.fail("list", prefix, err))
					return
				}
				if !yield(info, nil) {
					return
				}
			}
			more = l.token != ""
		}
		if err := ctx.Err(); err != nil {
			yield(objstore.Info{}, s.fail("list", prefix, err))
		}
	}
}

// lister reads the pages. It checks that keys ascend: callers that merge lists depend on it, and a
// server that repeats pages would otherwise never end.
type lister struct {
	store  *Store
	prefix string
	token  string
	last   string // last key
	empty  int    // number of empty pages in a row
}

func (l *lister) next(ctx context.Context) ([]objstore.Info, error) {
	s := l.store
	in := &s3.ListObjectsV2Input{
		Bucket: &s.bucket,
		// Keys may contain bytes that XML cannot represent.
		EncodingType: types.EncodingTypeUrl,
	}
	if l.prefix != "" {
		in.Prefix = &l.prefix
	}
	if l.token != "" {
		in.ContinuationToken = &l.token
	}
	var out *s3.ListObjectsV2Output
	err := s.reader.Do(ctx, func(ctx context.Context) (err error) {
		out, err = s.client.ListObjectsV2(ctx, in)
		return s.explain("list", err)
	})
	if err != nil {
		return nil, err
	}
	s.found.Store(true)
	page := make([]objstore.Info, 0, len(out.Contents))
	for _, object := range out.Contents {
		info, ok, err := l.info(object, out.EncodingType == types.EncodingTypeUrl)
		if err != nil {
			return nil, err
		}
		if ok {
			page = append(page, info)
		}
	}
	return page, l.advance(out, len(out.Contents))
}

// advance stores the token of the next page, "" if there is none.
func (l *lister) advance(out *s3.ListObjectsV2Output, keys int) error {
	if !aws.ToBool(out.IsTruncated) {
		l.token = ""
		return nil
	}
	const most = 1000
	if l.empty++; keys > 0 {
		l.empty = 0
	}
	token := aws.ToString(out.NextContinuationToken)
	if token == "" || token == l.token || l.empty > most {
		return errors.New("the server lists more keys than it returns and gives no token for the next page; use one that lists in pages")
	}
	l.token = token
	return nil
}

// info describes one key. ok is false if it is not a valid name.
func (l *lister) info(object types.Object, encoded bool) (info objstore.Info, ok bool, err error) {
	key := aws.ToString(object.Key)
	if encoded {
		plain, err := url.QueryUnescape(key)
		if err != nil {
			return info, false, fmt.Errorf("the server lists a key that is not URL-encoded as declared: %.100q", key)
		}
		key = plain
	}
	if !strings.HasPrefix(key, l.prefix) {
		return info, false, fmt.Errorf("the server lists %.100q, which does not begin with the prefix asked for", key)
	}
	if l.last != "" && key <= l.last {
		return info, false, fmt.Errorf("the server lists %.100q after %.100q; only servers that list in ascending order "+
			"of keys are supported, which directory buckets of S3 do not", key, l.last)
	}
	l.last = key
	info = objstore.Info{
		Name:    key[len(l.store.prefix):],
		Size:    aws.ToInt64(object.Size),
		ETag:    plainTag(object.ETag),
		ModTime: aws.ToTime(object.LastModified),
	}
	return info, checkName(info.Name) == nil && info.Size >= 0, nil
}
