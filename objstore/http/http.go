// Package httpstore is the store behind any web server that serves ranges: read only, and without a list.
//
// Ranges are read by package ranged, as those of S3 are. An answer has to be status 206 with the range asked for; a
// server that ignores Range, and a page that a proxy puts in place of the object, are found out. The version is pinned by
// a strong ETag, else by Last-Modified, and asked for with If-Range.
//
// A user and password, or a query (a signature), in the store's address go with every request. They are never shown.
package httpstore

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Stats counts what a store's reads did.
type Stats = ranged.Stats

// Options change how a store is read. Zero fields take the defaults.
type Options struct {
	objstore.ReadOptions

	// Header goes with every request, such as an Authorization.
	Header http.Header
	// HTTPClient sends the requests; nil for the store's own.
	HTTPClient *http.Client
	// Logger takes what is odd and yet no error, such as a store that is waited for; nil for none.
	// No secret is logged.
	Logger *slog.Logger
}

// Store is an [objstore.Store] of the objects below a URL, and an [objstore.Remote]. Use [New]; it may be used from many
// goroutines and needs no closing.
type Store struct {
	base    url.URL // with user and query; the path ends in /
	address string  // without
	header  http.Header
	client  *http.Client
	reader  *ranged.Reader
}

var _ objstore.Store = (*Store)(nil)

// New returns the store of the objects whose URLs are base, a slash, and the name. It sends no request.
func New(base string, opts Options) (*Store, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The text may hold a password: it is not repeated.
		return nil, errors.New("objstore: open: the address is no URL; give one like https://host/prefix")
	}
	u.Fragment, u.RawFragment = "", ""
	u = u.JoinPath("/")
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	s := &Store{
		base:    *u,
		address: strings.TrimSuffix(shown.String(), "/"),
		header:  opts.Header.Clone(),
		client:  opts.HTTPClient,
	}
	s.reader = ranged.New(s.address, opts.ReadOptions, opts.Logger)
	if s.client == nil {
		s.client = newClient(s.reader.Traits().MostRequests)
	}
	if s.client.CheckRedirect == nil {
		bounded := *s.client
		bounded.CheckRedirect = ranged.CheckRedirect
		s.client = &bounded
	}
	return s, nil
}

func newClient(concurrency int) *http.Client {
	var dialer net.Dialer
	ranged.TuneDialer(&dialer)
	transport := &http.Transport{DialContext: dialer.DialContext}
	ranged.Tune(transport, concurrency+ranged.Extra(concurrency))
	return &http.Client{Transport: transport}
}

// String is the URL without user, password and query.
func (s *Store) String() string { return s.address }

// Traits returns the Concurrency and MostConcurrency of the Options, and Reserve.
func (s *Store) Traits() objstore.Traits { return s.reader.Traits() }

// Stats returns the counters of all reads so far; Stat counts as a request too.
func (s *Store) Stats() Stats { return s.reader.Stats() }

// List yields one error that wraps [objstore.ErrNoList]: HTTP has no list.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		err := ctx.Err()
		if err == nil {
			err = objstore.ErrNoList
		}
		yield(objstore.Info{}, s.fail("list", prefix, err))
	}
}

// Create gives an error that wraps [objstore.ErrReadOnly].
func (s *Store) Create(ctx context.Context, name string, _ objstore.Condition) (objstore.Upload, error) {
	return nil, s.readOnly(ctx, "put", name)
}

// Delete gives an error that wraps [objstore.ErrReadOnly].
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.readOnly(ctx, "delete", name)
}

func (s *Store) readOnly(ctx context.Context, op, name string) error {
	err := check(ctx, name)
	if err == nil {
		err = objstore.ErrReadOnly
	}
	return s.fail(op, name, err)
}

func check(ctx context.Context, name string) error {
	if err := objstore.CheckName(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (s *Store) fail(op, name string, err error) error {
	return objstore.NewError(op, s.address, name, err)
}
