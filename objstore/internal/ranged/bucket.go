package ranged

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/shardtool/shardtool/objstore"
)

// Bucket is the part of a bucket that a store has: the objects whose keys begin with Prefix, which
// is empty or ends in a slash. Address is the one of the store. The names of a bucket are UTF-8,
// unless Bytes is set.
type Bucket struct {
	Bucket, Prefix, Address string
	Bytes                   bool
}

// bucketName also matches the names of Azure's containers.
var bucketName = regexp.MustCompile(`^[-_.A-Za-z0-9]{1,255}$`)

// NewBucket checks the names. base is what precedes the bucket in the address, such as s3://. A
// bucket's name must not change another part of a URL; the server checks its own rules. kind is
// what the store calls a bucket.
func NewBucket(base, kind, bucket, prefix string) (Bucket, error) {
	b := Bucket{Bucket: bucket, Address: base + bucket}
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "" {
		b.Prefix, b.Address = prefix+"/", b.Address+"/"+prefix
		if err := CheckName(prefix); err != nil {
			return b, err
		}
	}
	if !bucketName.MatchString(bucket) || bucket == "." || bucket == ".." {
		return b, fmt.Errorf("the %s's name must have 1 to 255 letters, digits, dots, dashes and underscores; give %s%[1]s/prefix", kind, base)
	}
	return b, nil
}

// String returns the address.
func (b *Bucket) String() string { return b.Address }

// Key checks a name and its context, and returns the key.
func (b *Bucket) Key(ctx context.Context, name string) (string, error) {
	check := CheckName
	if b.Bytes {
		check = objstore.CheckName
	}
	if err := check(name); err != nil {
		return "", err
	}
	if key := b.Prefix + name; len(key) <= objstore.MaxNameLen {
		return key, ctx.Err()
	}
	return "", fmt.Errorf("%w: with the prefix it has %d bytes, the limit of a key is %d",
		objstore.ErrName, len(b.Prefix)+len(name), objstore.MaxNameLen)
}

// CheckName checks the rules of every store and the one of buckets.
func CheckName(name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: it is not UTF-8, which the store requires", objstore.ErrName)
	}
	return nil
}

// CheckEndpoint refuses invalid endpoints; an empty one is none. Its errors do not contain the
// endpoint, which may have a password.
func CheckEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the endpoint is not a URL; give one like https://host:port")
	case u.User != nil:
		return errors.New("the endpoint has a user or password in it; give credentials by the environment or a profile")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the endpoint has a query or fragment; give scheme, host and port")
	}
	return nil
}

// Private reports whether nobody on the way to a URL can read what is sent there.
func Private(u *url.URL) bool {
	host := u.Hostname()
	return u.Scheme == "https" || host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}
