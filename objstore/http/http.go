// Package httpstore reads objects from any web server that serves ranges. The store is read only
// and cannot list.
//
// Package ranged reads the ranges, as it does for S3. A valid answer has status 206 and the
// requested range, so servers that ignore Range and error pages of proxies are detected. The
// version is pinned by a strong ETag, or else by Last-Modified, and requested with If-Range.
//
// A user and password or a query (a signature) in the store's address are sent with every request.
// They never appear in errors or logs.
package httpstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. Zero fields have the defaults.
type Options struct {
	objstore.ReadOptions

	// Header is sent with every request, for example an Authorization.
	Header http.Header
	// HTTPClient sends the requests. Nil means a client of the store's own.
	HTTPClient *http.Client
	// Logger receives warnings that are not errors, for example that reads wait for the store. Nil
	// means none. Secrets are never logged.
	Logger *slog.Logger
}

// store is a store of the objects below a URL.
type store struct {
	ranged.ReadOnly
	base    url.URL // contains user and query; the path ends in /
	address string  // base without them
	header  http.Header
	client  ranged.Client
	reader  *ranged.Reader
}

// New returns the store of the objects whose URLs are base, a slash and the name. It sends no
// request. The store needs no closing.
func New(base string, opts Options) (objstore.Store, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// Do not repeat the text, which may contain a password.
		return nil, errors.New("objstore: open: the address is not a URL; give one like https://host/prefix")
	}
	u.Fragment, u.RawFragment = "", ""
	u = u.JoinPath("/")
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	s := &store{
		base:    *u,
		address: strings.TrimSuffix(shown.String(), "/"),
		header:  opts.Header.Clone(),
	}
	s.ReadOnly = ranged.ReadOnly{Store: s.address, Check: check, Err: objstore.ErrReadOnly}
	s.reader = ranged.New(s.address, opts.ReadOptions, opts.Logger)
	client := cmp.Or(opts.HTTPClient, ranged.NewClient(s.reader.Traits().MostRequests))
	s.client = ranged.Client{Doer: ranged.BoundRedirects(client)}
	return s, nil
}

// String returns the URL without user, password and query.
func (s *store) String() string { return s.address }

// Traits reports a remote store, with the concurrency that the Options set.
func (s *store) Traits() objstore.Traits { return s.reader.Traits() }

// Describe says whether requests have credentials.
func (s *store) Describe(context.Context) (objstore.Description, error) {
	d := objstore.Description{Identity: "anonymous", From: "the address", Endpoint: s.base.Scheme + "://" + s.base.Host}
	switch {
	case s.base.User != nil:
		d.Identity = "user and password"
	case s.base.RawQuery != "":
		d.Identity = "query, such as a signature"
	case s.header.Get("Authorization") != "":
		d.Identity, d.From = "Authorization", "the header of the store"
	}
	return d, nil
}

// List yields one error that wraps [objstore.ErrNoList], because HTTP has no list.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		err := ctx.Err()
		if err == nil {
			err = objstore.ErrNoList
		}
		yield(objstore.Info{}, s.fail("list", prefix, err))
	}
}

func check(ctx context.Context, name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (s *store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}
