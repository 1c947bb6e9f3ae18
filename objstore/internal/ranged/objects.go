package ranged

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Connection has the options that stores have in common.
type Connection struct {
	// ReadOptions tune reads.
	objstore.ReadOptions
	// WriteTimeout is the longest time in which a request of an upload moves no byte in either
	// direction, by default 60 s.
	WriteTimeout time.Duration
	// HTTPClient sends the requests, for tests. Nil means a client of the store's own.
	HTTPClient *http.Client
	// Logger receives warnings that are not errors. Nil means none. Secrets are never logged.
	Logger *slog.Logger
}

// Backend sends requests for one object, each without a retry of its own. Its errors are the ones
// of a [Getter].
type Backend interface {
	Get(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, Meta, error)
	Head(ctx context.Context, key string) (Meta, error)
	Remove(ctx context.Context, key string) error
}

// Objects implements the methods of [objstore.Store] but Create and List for the objects in a
// bucket. The stores on networks embed it.
type Objects struct {
	Bucket
	Reader  *Reader
	Client  Client
	Secrets Secrets
	backend Backend
}

// Connect sets all but the bucket. It returns the client that sends the requests.
func (o *Objects) Connect(c Connection, b Backend) *http.Client {
	o.Attach(c, b)
	client := c.HTTPClient
	if client == nil {
		client = NewClient(o.Reader.Traits().MostRequests + 16)
	}
	o.Client = Client{Doer: BoundRedirects(client)}
	return client
}

// Attach sets all but the bucket and the client.
func (o *Objects) Attach(c Connection, b Backend) {
	o.Reader = New(o.Address, c.ReadOptions, c.Logger)
	o.Reader.WriteTimeout = cmp.Or(c.WriteTimeout, time.Minute)
	o.backend = b
}

// Traits reports a remote store, with the concurrency that the options set.
func (o *Objects) Traits() objstore.Traits { return o.Reader.Traits() }

// Fail returns the error of an operation; see [objstore.NewError].
func (o *Objects) Fail(op, name string, err error) error {
	return objstore.NewError(op, o.Address, name, err)
}

// Summer is a [Backend] that can ask for a checksum if the answers to reads had none.
type Summer interface {
	Sum(ctx context.Context, key string, meta Meta) (*objstore.Sum, error)
}

// summed adds the checksum to an object.
type summed struct {
	*Object
	of  *Objects
	key string
}

// Sum returns the checksum for [objstore.SumOf], which costs no request once the object was read
// and an answer had it.
func (s summed) Sum(ctx context.Context) (*objstore.Sum, error) {
	meta, err := s.Meta(ctx)
	if ask, ok := s.of.backend.(Summer); ok && err == nil && meta.Sum == nil {
		meta.Sum, err = ask.Sum(ctx, s.key, meta)
	}
	return meta.Sum, s.of.Fail("get", s.name, err)
}

// Open sends no request: a missing object is an error of the first read or Info.
func (o *Objects) Open(ctx context.Context, name string) (objstore.Object, error) {
	key, err := o.Key(ctx, name)
	if err != nil {
		return nil, o.Fail("get", name, err)
	}
	get := func(ctx context.Context, off, n int64, etag string) (io.ReadCloser, Meta, error) {
		return o.backend.Get(ctx, key, off, n, etag)
	}
	return summed{o.Reader.Open(name, get, o.stater(key)), o, key}, nil
}

// Gone returns err, or [objstore.ErrChanged] if the version with that tag is missing.
func Gone(etag string, err error) error {
	if etag != "" && errors.Is(err, fs.ErrNotExist) {
		return objstore.ErrChanged
	}
	return err
}

func (o *Objects) stater(key string) Stater {
	return func(ctx context.Context) (Meta, error) { return o.backend.Head(ctx, key) }
}

// Stat sends one request.
func (o *Objects) Stat(ctx context.Context, name string) (objstore.Info, error) {
	key, err := o.Key(ctx, name)
	if err != nil {
		return objstore.Info{}, o.Fail("stat", name, err)
	}
	return o.Reader.Stat(ctx, name, o.stater(key))
}

// Delete removes an object.
func (o *Objects) Delete(ctx context.Context, name string) error {
	key, err := o.Key(ctx, name)
	if err == nil {
		err = o.Erase(ctx, key)
	}
	return o.Fail("delete", name, err)
}

// Erase removes the object of a key. A missing one is no error.
func (o *Objects) Erase(ctx context.Context, key string) error {
	err := o.Reader.Do(ctx, func(ctx context.Context) error { return o.backend.Remove(ctx, key) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
