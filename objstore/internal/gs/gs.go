// Package gs stores objects in a bucket of Google Cloud Storage, by its JSON API.
//
// # Reading
//
// Package ranged reads the ranges. The version of an object is its generation, and every request
// after the first asks for that generation. If it is gone, the object is [objstore.ErrChanged].
//
// # Writing
//
//	Create   sends nothing
//	Write    puts parts in parallel, as they fill; keeps the last bytes in memory
//	Commit   composes the object of its parts by one request and deletes them, or puts it by one
//	         request if it is small
//
// Parts are objects of their own below the store's prefix, which no List shows. The request that
// makes the object visible has the condition on its generation. The server compares the CRC-32C of
// each part before it keeps it, and the store the one of the composed object. The object has a
// random tag in its metadata: if the answer to a commit is lost, the tag shows whose object it is.
// A process that dies leaves its parts, which Sweep deletes after a day.
//
// A resumable upload would need no parts, but is one stream that waits for an answer to each chunk.
package gs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/credentials"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. The zero value is right for Google's servers.
type Options struct {
	// Endpoint is the URL of another server, without a path. The default is STORAGE_EMULATOR_HOST,
	// which implies Anonymous, or else https://storage.googleapis.com.
	Endpoint string
	// Anonymous sends no token, for public buckets. Otherwise the application default credentials
	// are used: GOOGLE_APPLICATION_CREDENTIALS, the file of gcloud, the metadata server.
	Anonymous bool
	// UserProject is the project that pays for the requests.
	UserProject string
	// StorageClass is of what is put, such as NEARLINE; the default is the bucket's. Parts have the
	// class STANDARD then, which costs nothing when they are deleted.
	StorageClass string
	// KMSKey is the resource name of the Cloud KMS key that encrypts what is put. The default is the
	// bucket's.
	KMSKey string
	// CustomerKey, 32 bytes, encrypts what is put and decrypts what is read. The server does not keep
	// it. It is never logged.
	CustomerKey []byte

	ranged.Connection

	// PartSize is the size of the first 2,000 parts of an upload, by default 8 MiB. Objects of at
	// most that size are put by one request. Each further 2,000 parts are four times as large.
	PartSize int
	// UploadConcurrency is the number of parts of one upload that are sent at once, by default 8. An
	// upload of several parts holds one part more than that in memory.
	UploadConcurrency int
}

// Store is an [objstore.Store] in a bucket. Use [New]. Many goroutines may use it. It needs no
// closing.
type Store struct {
	ranged.Objects
	base string // scheme and host
	opts Options
	auth *credentials.Source // nil for an anonymous store
	key  http.Header         // of the customer key, or nil
}

var _ objstore.Store = (*Store)(nil)

// New returns the store of the objects in bucket whose names begin with prefix and a slash, or of
// all objects if prefix is empty. It sends no request.
func New(bucket, prefix string, opts Options) (s *Store, err error) {
	s = &Store{opts: opts}
	if s.Bucket, err = ranged.NewBucket("gs://", "bucket", bucket, prefix); err == nil {
		err = s.connect()
	}
	if err != nil {
		return nil, s.Fail("open", "", err)
	}
	return s, nil
}

func (s *Store) connect() error {
	o := &s.opts
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); o.Endpoint == "" && host != "" {
		o.Endpoint, o.Anonymous = host, true
		if !strings.Contains(host, "://") {
			o.Endpoint = "http://" + host
		}
	}
	o.Endpoint = cmp.Or(o.Endpoint, "https://storage.googleapis.com")
	o.PartSize, o.UploadConcurrency = cmp.Or(o.PartSize, 8<<20), cmp.Or(o.UploadConcurrency, 8)
	if err := ranged.CheckEndpoint(o.Endpoint); err != nil {
		return err
	}
	client := s.Connect(o.Connection, s)
	classes := []string{"", "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"}
	u, err := url.Parse(o.Endpoint)
	switch {
	case !slices.Contains(classes, o.StorageClass): // it may be a secret
		return fmt.Errorf("the storage class is not one of Google's; give one of %s", strings.Join(classes[1:], ", "))
	case o.KMSKey != "" && len(o.CustomerKey) > 0:
		return errors.New("a customer key is an encryption of its own: leave the key of KMS out")
	case len(o.CustomerKey) > 0 && (err != nil || !ranged.Private(u)):
		return errors.New("the endpoint has no TLS, so that others could read the customer key: give one with https")
	case len(o.CustomerKey) > 0:
		s.key = customerKey(o.CustomerKey)
		s.Secrets.Remember(s.key.Get(keyHeader))
	}
	if !o.Anonymous {
		if err != nil || !ranged.Private(u) {
			return errors.New("the endpoint has no TLS, so that others could read the token; give https://, or add anonymous=true")
		}
		s.auth = credentials.Google("https://www.googleapis.com/auth/devstorage.read_write", client, &s.Secrets)
	}
	s.base = strings.TrimSuffix(o.Endpoint, "/")
	return nil
}

// Traits reports a remote store, with the concurrency that the Options set.
func (s *Store) Traits() objstore.Traits {
	traits := s.Objects.Traits()
	traits.Sweep, traits.ListVersions, traits.DeleteVersion = s.sweep, s.listVersions, s.deleteVersion
	traits.ListAll = func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
		return s.Reader.List(ctx, s.Prefix, prefix, isPart, s.page)
	}
	return traits
}

// Describe finds the credentials and asks for a token.
func (s *Store) Describe(ctx context.Context) (objstore.Description, error) {
	d := objstore.Description{Identity: "anonymous", From: "the address or STORAGE_EMULATOR_HOST", Endpoint: s.base}
	if s.auth == nil {
		return d, nil
	}
	_, err := s.auth.Token(ctx)
	d.Identity, d.From = s.auth.Describe()
	return d, s.Fail("open", "", err)
}

// Remove implements ranged.Backend.
func (s *Store) Remove(ctx context.Context, key string) error {
	return s.do(ctx, "delete", http.MethodDelete, s.url("", key, url.Values{}), nil)
}

// List requests pages of at most 1,000 names, each when the page before it is used up.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.Reader.List(ctx, s.Prefix, prefix, listed, s.page)
}

// page implements ranged.Pager.
func (s *Store) page(ctx context.Context, prefix, token string) (page []objstore.Info, next string, err error) {
	query := url.Values{"prefix": {prefix}, "maxResults": {"1000"},
		"fields": {"nextPageToken,items(name,size,generation,updated)"}}
	if token != "" {
		query.Set("pageToken", token)
	}
	var list struct {
		Items         []resource
		NextPageToken string
	}
	if err := s.do(ctx, "list", http.MethodGet, s.url("", "", query), &list); err != nil {
		return nil, "", err
	}
	for _, item := range list.Items {
		page = append(page, item.meta().Info(item.Name))
	}
	return page, list.NextPageToken, nil
}

// keyHeader is the header with the customer key
// (https://cloud.google.com/storage/docs/encryption/using-customer-supplied-keys).
const keyHeader = "X-Goog-Encryption-Key"

// customerKey returns the headers of requests for objects that a customer key encrypts.
func customerKey(key []byte) http.Header {
	sum := sha256.Sum256(key)
	return http.Header{keyHeader: {base64.StdEncoding.EncodeToString(key)},
		keyHeader + "-Sha256":         {base64.StdEncoding.EncodeToString(sum[:])},
		"X-Goog-Encryption-Algorithm": {"AES256"}}
}

// url returns the URL of an object, or of the list of objects if key is empty. service is "",
// "/upload" or "/compose".
func (s *Store) url(service, key string, query url.Values) string {
	u := s.base + "/storage/v1/b/" + s.Bucket.Bucket + "/o"
	if service == "/upload" {
		u = s.base + service + strings.TrimPrefix(u, s.base)
	}
	if key != "" {
		u += "/" + strings.ReplaceAll(url.QueryEscape(key), "+", "%20") // slashes too
	}
	if service == "/compose" {
		u += service
	}
	if s.opts.UserProject != "" {
		query.Set("userProject", s.opts.UserProject)
	}
	if s.opts.KMSKey != "" && service != "" {
		query.Set("kmsKeyName", s.opts.KMSKey)
	}
	return u + "?" + query.Encode()
}

// resource is the description of an object.
type resource struct {
	Name       string
	Size       int64 `json:",string"`
	Generation string
	Updated    time.Time
	CRC32C     string
	Metadata   map[string]string
}

func (r resource) meta() ranged.Meta {
	return ranged.Meta{Size: r.Size, ETag: r.Generation, ModTime: r.Updated, Sum: ranged.CRC32C.Sum(r.CRC32C)}
}

// Head implements ranged.Backend.
func (s *Store) Head(ctx context.Context, key string) (ranged.Meta, error) {
	r, err := s.stat(ctx, key)
	return r.meta(), err
}

func (s *Store) stat(ctx context.Context, key string) (r resource, err error) {
	err = s.do(ctx, "get", http.MethodGet,
		s.url("", key, url.Values{"fields": {"name,size,generation,updated,crc32c,metadata"}}), &r)
	if err == nil && r.Generation == "" {
		err = errNoGeneration
	}
	return r, err
}

var errNoGeneration = errors.New("the server gives the object no generation, so that its versions cannot be told apart; " +
	"check the endpoint")

// Get implements ranged.Backend.
func (s *Store) Get(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	query := url.Values{"alt": {"media"}}
	if etag != "" {
		query.Set("generation", etag)
	}
	answer, err := s.send(ctx, "get", http.MethodGet, s.url("", key, query), ranged.Range(off, n))
	if err != nil {
		return nil, ranged.Meta{}, ranged.Gone(etag, err)
	}
	header := answer.Header
	if header.Get("X-Goog-Stored-Content-Encoding") == "gzip" || header.Get("Content-Encoding") == "gzip" {
		answer.Body.Close()
		return nil, ranged.Meta{},
			errors.New("the object is stored with Content-Encoding: gzip, and the server has no ranges of what it " +
				"decompresses; store it without (gcloud storage objects update --clear-content-encoding, or upload it again)")
	}
	meta, err := ranged.RangeMeta(answer, off, n)
	meta.ETag = header.Get("X-Goog-Generation")
	for value := range strings.SplitSeq(strings.Join(header.Values("X-Goog-Hash"), ","), ",") {
		if sum, ok := strings.CutPrefix(strings.TrimSpace(value), "crc32c="); ok {
			meta.Sum = ranged.CRC32C.Sum(sum)
		}
	}
	return answer.Body, meta, err
}
