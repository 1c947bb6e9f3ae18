// Package address turns what a user writes for a store into the store:
//
//	out/                       a directory
//	s3://bucket/prefix         a bucket of S3, or of a server that speaks its protocol
//	https://host/prefix        files of a web server, to read
//
// It is a package of its own so that objstore, which every store imports, imports none of them.
//
// # S3
//
// Credentials, region and endpoint come as all programs on AWS's SDKs find them: AWS_ACCESS_KEY_ID
// and its like, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL, the files in ~/.aws, the role of the
// machine. What goes with one data set can stand in its address:
// s3://bucket/prefix?endpoint=https://host:9000&region=eu-west-1&profile=name&anonymous=true&path_style=true.
// unchecked=true is for servers whose ETags look like MD5s of the content and are not, or whose
// checksums are wrong.
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

// ErrScheme: the address names a scheme no store answers to.
var ErrScheme = errors.New("unsupported scheme")

// Options say how stores are reached.
type Options struct {
	// Logger takes what is odd and yet no error, nil for none. No secret is logged.
	Logger *slog.Logger
}

// Open returns the store at an address. A local path is that directory, which need not exist yet; a path to a file is
// refused. No request is sent: whether a bucket or host is there is what the first use of the store says. An address with a scheme
// that no store answers to gives an error that wraps [ErrScheme] and names it. Errors repeat no user information and no query.
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

// openS3 reads bucket/prefix?options.
func openS3(ctx context.Context, rest string, o Options) (objstore.Store, error) {
	place, query, _ := strings.Cut(rest, "?")
	bucket, prefix, _ := strings.Cut(place, "/")
	opts := s3.Options{Logger: o.Logger}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("objstore: open s3://%s: what follows the ? is no list of name=value", place)
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
			err = fmt.Errorf("there is no such option; there are %s", strings.Join(s3Options, ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("objstore: open s3://%s: option %q: %w", place, name, plain(err))
		}
	}
	return s3.New(ctx, bucket, prefix, opts)
}

var s3Options = slices.Sorted(slices.Values([]string{"endpoint", "region", "profile", "anonymous", "path_style", "unchecked"}))

// plain leaves the value out of what strconv says of it.
func plain(err error) error {
	if errors.Is(err, strconv.ErrSyntax) {
		return errors.New("give true or false")
	}
	return err
}

// cutScheme splits scheme://rest. The scheme is RFC 3986's (a letter, then letters, digits, + - .), in lower case.
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
