// Package address opens the store that an address names:
//
//	out/                       a directory
//	s3://bucket/prefix         a bucket of S3 or of a compatible server
//	https://host/prefix        files of a web server, read only
//
// It is separate from package objstore, which every store imports, so that objstore imports no
// store.
//
// # S3
//
// The AWS SDK finds credentials, region and endpoint in the usual places: AWS_ACCESS_KEY_ID and
// related variables, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL, the files in ~/.aws, the role of
// the machine. An address can hold settings for one data set:
//
//	s3://bucket/prefix?endpoint=https://host:9000&region=eu-west-1&profile=name&anonymous=true&path_style=true.
//
// unchecked=true is for servers whose checksums are wrong, or whose ETags look like MD5s of the
// content and are not.
package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/s3"
)

// ErrScheme reports an address with a scheme that no store supports.
var ErrScheme = errors.New("unsupported scheme")

// Options configure the store.
type Options struct {
	// Logger receives warnings that are not errors. Nil means none. Secrets are never logged.
	Logger *slog.Logger
}

// Open returns the store at an address. It sends no request: a missing bucket or host is an error
// of the first use. A local path names a directory, which need not exist; a path to a file is
// refused. The error for an unsupported scheme wraps [ErrScheme] and names the scheme. Errors
// contain neither user information nor a query.
func Open(ctx context.Context, addr string, o Options) (objstore.Store, error) {
	if addr == "" {
		return nil, errors.New("objstore: the address is empty; give a directory, or a URL such as s3://bucket/prefix")
	}
	scheme, rest, ok := cutScheme(addr)
	if !ok {
		return local.New(addr, local.Options{})
	}
	switch scheme {
	case "s3":
		return openS3(ctx, rest, o)
	case "http", "https":
		return httpstore.New(addr, httpstore.Options{Logger: o.Logger})
	case "file":
		return nil, fmt.Errorf("objstore: open %s: %w file; give the path itself: %s", addr, ErrScheme, rest)
	}
	return nil, fmt.Errorf("objstore: %w %s://; give a directory, s3://bucket/prefix or https://host/prefix", ErrScheme, scheme)
}

// openS3 parses bucket/prefix?options.
func openS3(ctx context.Context, rest string, o Options) (objstore.Store, error) {
	place, query, _ := strings.Cut(rest, "?")
	bucket, prefix, _ := strings.Cut(place, "/")
	opts := s3.Options{Logger: o.Logger}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("objstore: open s3://%s: the text after the ? is not a list of name=value", place)
	}
	for name, all := range values {
		value := all[len(all)-1]
		switch name {
		case "endpoint":
			opts.Endpoint = value
		case "region":
			opts.Region = value
		case "profile":
			opts.Profile = value
		case "anonymous":
			opts.Anonymous, err = strconv.ParseBool(value)
		case "unchecked":
			opts.Unchecked, err = strconv.ParseBool(value)
		case "path_style":
			var on bool
			on, err = strconv.ParseBool(value)
			opts.PathStyle = &on
		default:
			err = fmt.Errorf("unknown option; the options are %s", strings.Join(s3Options, ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("objstore: open s3://%s: option %q: %w", place, name, plain(err))
		}
	}
	return s3.New(ctx, bucket, prefix, opts)
}

var s3Options = slices.Sorted(slices.Values([]string{"endpoint", "region", "profile", "anonymous", "path_style", "unchecked"}))

// plain removes the value from an error of strconv, because the value may be a secret.
func plain(err error) error {
	if errors.Is(err, strconv.ErrSyntax) {
		return errors.New("give true or false")
	}
	return err
}

// cutScheme splits scheme://rest. It accepts the schemes of RFC 3986 (a letter, then letters,
// digits, + - .) and returns them in lower case.
func cutScheme(addr string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(addr, "://")
	if !ok || scheme == "" {
		return "", "", false
	}
	scheme = strings.ToLower(scheme)
	for i, c := range []byte(scheme) {
		letter := 'a' <= c && c <= 'z'
		other := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return scheme, rest, true
}
