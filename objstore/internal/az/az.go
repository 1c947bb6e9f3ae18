// Package az stores objects as block blobs in a container of Azure Blob Storage, by its REST API.
//
// # Reading
//
// Package ranged reads the ranges. The version of an object is its ETag, and every request after
// the first has it in If-Match. In accounts with a hierarchical namespace, folders are not listed,
// and all pages are requested before the first object is yielded, because the order is another one.
//
// # Writing
//
//	Create   sends nothing
//	Write    sends blocks, several at once, as soon as there is more than one
//	Commit   sends the list of the blocks, or the whole object if it is small
//
// The last request of both kinds has the condition, which the server checks when the object becomes
// visible. Every request with a body has its MD5, which the server compares. An upload has a random
// tag, which its blocks' IDs begin with and which is in its metadata: if the answer to a commit is
// lost, the tag shows whose object it is. Another writer's commit of the same name discards the
// blocks. A process that dies leaves blocks, which no List shows and which are discarded after a
// week.
//
// The protocol is documented at
// https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api.
package az

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Options configure a store. The zero value is right for Azure's public cloud.
type Options struct {
	// Endpoint is the URL of the Blob service. The account is its path, unless the URL has one or
	// its host begins with the account. The default is the environment's, or else
	// https://ACCOUNT.blob.core.windows.net.
	Endpoint string
	// Anonymous sends no credentials, for public containers.
	Anonymous bool
	// SAS is a shared access signature, a query. It is a secret. Without it, and unless Anonymous
	// is set, the environment has the credentials.
	SAS string
	// AccessTier is of what is put, such as Cool. The default is the account's.
	AccessTier string
	// EncryptionScope is the scope that encrypts what is put. The default is the container's.
	EncryptionScope string
	// CustomerKey, 32 bytes, encrypts what is put and decrypts what is read. The server does not keep
	// it. It is never logged.
	CustomerKey []byte

	ranged.Connection

	// BlockSize is the size of the first 10,000 blocks of an upload, by default 8 MiB and at most
	// 15. Objects of at most that size are put by one request. Each further 10,000 blocks are four
	// times as large.
	BlockSize int
	// Workers is the number of blocks of one upload that are sent at once, by default 8.
	Workers int
}

// Store is an [objstore.Store] in a container. Use [New]. Many goroutines may use it. It needs no
// closing.
type Store struct {
	ranged.Objects
	account string
	base    string // URL of the account
	opts    Options
	auth    identity

	read, put http.Header // of requests for what blobs contain
}

var _ objstore.Store = (*Store)(nil)

var accountName = regexp.MustCompile(`^[-A-Za-z0-9]+$`)

// New returns the store of the objects in container whose names begin with prefix and a slash, or
// of all objects if prefix is empty. It sends no request.
func New(account, container, prefix string, opts Options) (s *Store, err error) {
	s = &Store{account: account, opts: opts}
	s.Bucket, err = ranged.NewBucket("az://"+account+"/", "container", container, prefix)
	if !accountName.MatchString(account) {
		s.Address, err = "az://",
			errors.New("the account's name must have letters, digits and dashes; give az://account/container/prefix")
	}
	if err == nil {
		err = s.connect()
	}
	if err != nil {
		return nil, s.Fail("open", "", err)
	}
	return s, nil
}

func (s *Store) connect() (err error) {
	o := &s.opts
	client := s.Connect(o.Connection, s)
	o.BlockSize, o.Workers = min(cmp.Or(o.BlockSize, 8<<20), 15<<20), cmp.Or(o.Workers, 8)
	if err = s.identify(client); err != nil {
		return err
	}
	o.Endpoint = strings.TrimSuffix(cmp.Or(o.Endpoint, "https://"+s.account+".blob.core.windows.net"), "/")
	if err = ranged.CheckEndpoint(o.Endpoint); err != nil {
		return err
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return err
	}
	if s.base = o.Endpoint; u.Path == "" && !strings.HasPrefix(u.Host, s.account+".") {
		s.base += "/" + s.account
	}
	if (s.auth.sas != nil || s.auth.tokens != nil) && !ranged.Private(u) {
		return errors.New("the endpoint has no TLS, so that others could read the credentials; give https://, an account key, or anonymous=true")
	}
	return s.require(u)
}

// require sets the headers of what the owner of the account requires.
func (s *Store) require(endpoint *url.URL) error {
	o := &s.opts
	tiers := []string{"", "Hot", "Cool", "Cold", "Archive"}
	switch {
	case !slices.Contains(tiers, o.AccessTier): // it may be a secret
		return fmt.Errorf("the access tier is not one of Azure's; give one of %s", strings.Join(tiers[1:], ", "))
	case o.EncryptionScope != "" && len(o.CustomerKey) > 0:
		return errors.New("a customer key is an encryption of its own: leave the encryption scope out")
	case strings.ContainsFunc(o.EncryptionScope, unicode.IsControl):
		return errors.New("the encryption scope has a control character")
	case len(o.CustomerKey) > 0 && !ranged.Private(endpoint):
		return errors.New("the endpoint has no TLS, so that others could read the customer key: give one with https")
	}
	s.read, s.put = http.Header{}, http.Header{}
	if len(o.CustomerKey) > 0 {
		sum, key := sha256.Sum256(o.CustomerKey), base64.StdEncoding.EncodeToString(o.CustomerKey)
		s.Secrets.Remember(key)
		s.read.Set("X-Ms-Encryption-Key", key)
		s.read.Set("X-Ms-Encryption-Key-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
		s.read.Set("X-Ms-Encryption-Algorithm", "AES256")
		s.put = s.read.Clone()
	}
	if o.EncryptionScope != "" {
		s.put.Set("X-Ms-Encryption-Scope", o.EncryptionScope)
	}
	return nil
}

// Describe asks for a token, if the identity is one that has tokens.
func (s *Store) Describe(ctx context.Context) (d objstore.Description, err error) {
	d = objstore.Description{Endpoint: s.base}
	if s.auth.tokens != nil {
		_, err = s.auth.tokens.Token(ctx)
	}
	d.Identity, d.From = s.auth.describe()
	return d, s.Fail("open", "", err)
}

// Remove implements ranged.Backend.
func (s *Store) Remove(ctx context.Context, key string) error {
	_, err := s.do(ctx, "delete", http.MethodDelete, key, nil, nil, nil)
	return err
}

// List requests pages of at most 5,000 names. Azure orders names by their UTF-16, which is another
// order than the one of their bytes if there are characters above U+FFFF, and in accounts with a
// hierarchical namespace by their elements
// (https://github.com/Azure/azure-sdk-for-go/issues/24210). List then sorts, from the page on where
// it notices that.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return s.list(ctx, prefix, ranged.CheckName)
}

// Traits returns the traits of all stores on networks, and ListAll.
func (s *Store) Traits() objstore.Traits {
	traits := s.Objects.Traits()
	traits.ListAll = func(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
		return s.list(ctx, prefix, nil)
	}
	traits.ListVersions, traits.DeleteVersion = s.listVersions, s.deleteVersion
	return traits
}

func (s *Store) list(ctx context.Context, prefix string,
	check func(name string) error) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		var held []objstore.Info
		sorts := false
		s.Reader.List(ctx, s.Prefix, prefix, check,
			func(ctx context.Context, prefix, token string) ([]objstore.Info, string, error) {
				page, next, other, err := s.page(ctx, prefix, token)
				if sorts = sorts || other; !sorts || err != nil {
					return page, next, err
				}
				if held = append(held, page...); next != "" {
					return nil, next, nil
				}
				slices.SortFunc(held, func(a, b objstore.Info) int { return strings.Compare(a.Name, b.Name) })
				return held, "", nil
			})(yield)
	}
}

// page requests one page. other reports that the names are or will be in another order.
func (s *Store) page(ctx context.Context, prefix,
	token string) (page []objstore.Info, next string, other bool, err error) {
	list, err := s.enumerate(ctx, prefix, token, "")
	for i := range list.Blobs.Blob {
		b := &list.Blobs.Blob[i]
		other = other || b.Properties.ResourceType != "" ||
			strings.IndexFunc(b.name(), func(r rune) bool { return r > 0xFFFF }) >= 0
		if info, ok := b.info(prefix); ok {
			page = append(page, info)
		}
	}
	return page, list.NextMarker, other, err
}

// enumeration is a page of a list.
type enumeration struct {
	Blobs      struct{ Blob []blob }
	NextMarker string
}

// blob is an entry of a list.
type blob struct {
	Name struct {
		Encoded bool   `xml:",attr"`
		Text    string `xml:",chardata"`
	}
	Properties struct {
		Modified      string `xml:"Last-Modified"`
		Etag          string
		Size          int64  `xml:"Content-Length"`
		ResourceType  string // only with a hierarchical namespace
		RemainingDays int    `xml:"RemainingRetentionDays"`
	}
	// only if they are asked for
	Deleted, IsCurrentVersion bool
	VersionID                 string `xml:"VersionId"`
	Snapshot                  string
}

func (b *blob) name() string {
	if decoded, err := url.PathUnescape(b.Name.Text); b.Name.Encoded && err == nil {
		return decoded
	}
	return b.Name.Text
}

// info describes the blob. ok is false for folders, and for blobs without the prefix.
func (b *blob) info(prefix string) (info objstore.Info, ok bool) {
	p := &b.Properties
	modified, _ := http.ParseTime(p.Modified)
	info = objstore.Info{Name: b.name(), Size: p.Size, ETag: ranged.PlainTag(p.Etag), ModTime: modified}
	return info, p.ResourceType != "directory" && strings.HasPrefix(info.Name, prefix)
}

// enumerate requests a page of a list of blobs. include is what it shall have in addition.
func (s *Store) enumerate(ctx context.Context, prefix, token, include string) (list enumeration, err error) {
	whole := prefix // in UTF-8; what it matches in addition is left out by info
	for !utf8.ValidString(whole) {
		whole = whole[:len(whole)-1]
	}
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {whole}, "maxresults": {"5000"}}
	if token != "" {
		query.Set("marker", token)
	}
	if include != "" {
		query.Set("include", include)
	}
	answer, err := s.send(ctx, "list", http.MethodGet, "", query, nil, nil)
	if err == nil {
		err = ranged.Decode(answer, &list, xml.Unmarshal)
	}
	return list, err
}

// Head implements ranged.Backend.
func (s *Store) Head(ctx context.Context, key string) (ranged.Meta, error) {
	_, meta, err := s.head(ctx, key)
	return meta, err
}

func (s *Store) head(ctx context.Context, key string) (http.Header, ranged.Meta, error) {
	header, err := s.do(ctx, "get", http.MethodHead, key, nil, nil, nil)
	if ranged.NoHead(err) {
		return s.first(ctx, key)
	}
	if err != nil {
		return nil, ranged.Meta{}, err
	}
	meta := describe(header)
	meta.ModTime, _ = http.ParseTime(header.Get("Last-Modified")) // if there is one
	meta.Size, err = strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	switch {
	case header.Get("X-Ms-Meta-Hdi_isfolder") == "true": // of a hierarchical namespace
		err = fs.ErrNotExist
	case err != nil:
		err = errors.New("the server gives the object no size; check the endpoint")
	case meta.ETag == "" && ranged.IsPage(header.Get("Content-Type")):
		err = ranged.ErrPage
	}
	return header, meta, err
}

// first describes an object by a GET of one byte, or of all bytes of an empty one.
func (s *Store) first(ctx context.Context, key string) (http.Header, ranged.Meta, error) {
	answer, err := s.send(ctx, "get", http.MethodGet, key, nil, ranged.Range(0, 1), nil)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		answer, err = s.send(ctx, "get", http.MethodGet, key, nil, nil, nil)
	}
	if err != nil {
		return nil, ranged.Meta{}, err
	}
	meta := describe(answer.Header)
	whole, err := ranged.RangeMeta(answer, 0, 1)
	answer.Body.Close()
	meta.Size, meta.ModTime = whole.Size, whole.ModTime
	return answer.Header, meta, err
}

// describe returns the version and the checksum that a header has.
func describe(header http.Header) (meta ranged.Meta) {
	meta.ETag = ranged.PlainTag(header.Get("ETag"))
	text := header.Get("X-Ms-Blob-Content-Md5") // in answers with a part, where Content-MD5 would be the part's
	if header.Get("Content-Range") == "" {
		text = header.Get("Content-MD5")
	}
	if meta.Sum = ranged.MD5.Sum(text); header.Get("X-Ms-Blob-Type") != "BlockBlob" {
		meta.Sum = nil // the server does not update it when such a blob is changed
	} else if meta.Sum != nil {
		meta.Sum.Advice = "if the blob is right, its writer gave it a wrong Content-MD5: correct that property"
	}
	return meta
}

// Get implements ranged.Backend.
func (s *Store) Get(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	header := ranged.Range(off, n)
	if etag != "" {
		header.Set("If-Match", `"`+etag+`"`)
	}
	answer, err := s.send(ctx, "get", http.MethodGet, key, nil, header, nil)
	if err != nil {
		return nil, ranged.Meta{}, ranged.Gone(etag, err)
	}
	meta := describe(answer.Header)
	whole, err := ranged.RangeMeta(answer, off, n)
	meta.Size, meta.ModTime = whole.Size, whole.ModTime
	return answer.Body, meta, err
}
