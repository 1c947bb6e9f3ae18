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
	ranged.Objects
	base   url.URL // contains user and query; the path ends in /
	header http.Header
}

// New returns the store of the objects whose URLs are base, a slash and the name. It sends no
// request. The store needs no closing.
func New(base string, opts Options) (objstore.Store, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// Do not repeat the text, which may contain a password.
		return nil, errors.New("open: the address is not a URL; give one like https://host/prefix")
	}
	u.Fragment, u.RawFragment = "", ""
	u = u.JoinPath("/")
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	s := &store{base: *u, header: opts.Header.Clone()}
	s.Bucket = ranged.Bucket{Address: strings.TrimSuffix(shown.String(), "/"), Bytes: true}
	s.Connect(ranged.Connection{ReadOptions: opts.ReadOptions, HTTPClient: opts.HTTPClient, Logger: opts.Logger}, s)
	return s, nil
}

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
		yield(objstore.Info{}, s.Fail("list", prefix, err))
	}
}

// Create returns an error: the store is read only.
func (s *store) Create(ctx context.Context, name string, _ objstore.Condition) (objstore.Upload, error) {
	_, err := s.Key(ctx, name)
	return nil, s.Fail("put", name, cmp.Or(err, objstore.ErrReadOnly))
}

// Remove implements ranged.Backend. It returns an error: the store is read only.
func (s *store) Remove(context.Context, string) error { return objstore.ErrReadOnly }
