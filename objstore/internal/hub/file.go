package hub

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// file is what is known of one file at the commit.
type file struct {
	turn turn // of the request to /resolve/
	link atomic.Pointer[link]
}

// link is where the bytes of a file are.
type link struct {
	url   *url.URL
	until time.Time
	tag   string // the file's hash, "" if unknown
	size  int64  // -1 if unknown
}

// mostFiles is the number of files whose places are kept.
const mostFiles = 1 << 14

func (s *store) file(key string) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[key]
	if f == nil {
		if len(s.files) >= mostFiles {
			for some := range s.files {
				delete(s.files, some)
				break
			}
		}
		f = &file{turn: make(turn, 1)}
		s.files[key] = f
	}
	return f
}

// kept returns the place if it has not expired. The rest of the link is valid in any case.
func (f *file) kept() (l link, ok bool) {
	if known := f.link.Load(); known != nil {
		return *known, known.until.IsZero() || time.Now().Before(known.until)
	}
	return link{size: -1}, false
}

// meta describes the file. Its checksum is the file's hash: in LFS and Xet the SHA-256, in git the
// SHA-1 of a header and the bytes.
func (l link) meta() ranged.Meta {
	meta := ranged.Meta{Size: l.size, ETag: l.tag}
	want, err := hex.DecodeString(l.tag)
	switch {
	case err != nil:
	case len(want) == sha256.Size:
		meta.Sum = &objstore.Sum{Name: "SHA-256", Want: want, New: sha256.New}
	case len(want) == sha1.Size:
		meta.Sum = &objstore.Sum{Name: "git hash", Want: want, New: func() hash.Hash {
			h := sha1.New()
			fmt.Fprintf(h, "blob %d\x00", l.size)
			return h
		}}
	}
	return meta
}

// Get implements ranged.Backend. A commit never changes. If a server sends another version even so,
// its tag tells package ranged.
func (s *store) Get(ctx context.Context, key string, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	answer, l, err := s.read(ctx, key, off, n)
	if err != nil {
		return nil, ranged.Meta{}, ranged.Gone(etag, err)
	}
	return answer.Body, l.meta(), nil
}

// Head implements ranged.Backend. A commit never changes, so what is known stays valid.
func (s *store) Head(ctx context.Context, key string) (ranged.Meta, error) {
	f := s.file(key)
	if l, _ := f.kept(); l.tag != "" && l.size >= 0 {
		return l.meta(), nil
	}
	answer, l, err := s.resolve(ctx, f, link{}, http.MethodHead, key, nil)
	if answer != nil {
		answer.Body.Close()
		if l.tag == "" && ranged.IsPage(answer.Header.Get("Content-Type")) {
			return ranged.Meta{}, ranged.ErrPage
		}
		l.size = answer.ContentLength
		f.link.Store(&l)
	}
	if err == nil && l.size < 0 || ranged.NoHead(err) { // the answer has no X-Linked-Size
		if answer, l, err = s.read(ctx, key, 0, 1); err == nil {
			answer.Body.Close()
		}
	}
	return l.meta(), err
}

// read requests a range from where the file's bytes are. A place that was kept may refuse, because
// its signature has expired or was revoked; /resolve/ is asked for another one then.
func (s *store) read(ctx context.Context, key string, off, n int64) (*http.Response, link, error) {
	f, span := s.file(key), ranged.Range(off, n)
	l, ok := f.kept()
	if ok {
		answer, whole, err := s.fetch(ctx, l, span, off, n)
		if !errors.Is(err, errRefused) {
			return answer, whole, err
		}
	}
	answer, fresh, err := s.resolve(ctx, f, l, http.MethodGet, key, span)
	switch {
	case err != nil:
		return nil, l, err
	case answer == nil: // the bytes are elsewhere
		answer, l, err = s.fetch(ctx, fresh, span, off, n)
	default:
		l, err = fresh.body(answer, off, n)
	}
	if err == nil && l != fresh {
		f.link.Store(&l)
	}
	return answer, l, err
}

// resolve asks /resolve/ for a file and keeps its place. It returns the answer if that has the
// file's bytes or, to a HEAD, describes the file. If another call has found another place than old
// meanwhile, resolve returns that.
func (s *store) resolve(ctx context.Context, f *file, old link, method, key string,
	span http.Header) (*http.Response, link, error) {
	if err := f.turn.take(ctx); err != nil {
		return nil, link{}, err
	}
	defer func() { <-f.turn }()
	if l, ok := f.kept(); ok && l.url != old.url {
		return nil, l, nil
	}
	if err := s.turn.take(ctx); err != nil {
		return nil, link{}, err
	}
	known := s.commit
	if known != "" {
		<-s.turn
	} else { // other requests wait until this one knows the commit
		defer func() { <-s.turn }()
	}
	u := s.endpoint.JoinPath("datasets", s.Bucket.Bucket, "resolve", url.PathEscape(cmp.Or(known, s.revision)))
	for element := range strings.SplitSeq(key, "/") {
		u = u.JoinPath(url.PathEscape(element))
	}
	answer, err := s.send(ctx, method, u, span)
	if err != nil {
		return nil, link{}, err
	}
	if sha := answer.Header.Get("X-Repo-Commit"); known == "" && commit.MatchString(sha) {
		s.commit = sha
	} else if known == "" && answer.StatusCode/100 < 4 {
		answer.Body.Close()
		if ranged.IsPage(answer.Header.Get("Content-Type")) {
			return nil, link{}, ranged.ErrPage
		}
		return nil, link{}, s.noCommit()
	}
	l := link{url: answer.Request.URL, tag: plainTag(answer.Header), size: -1}
	if size, err := strconv.ParseInt(answer.Header.Get("X-Linked-Size"), 10, 64); err == nil {
		l.size = size
	}
	header := answer.Header
	if answer.StatusCode/100 != 2 {
		answer.Body.Close()
		if l.url, err = answer.Location(); answer.StatusCode/100 != 3 || err != nil {
			return nil, link{}, s.explain(answer)
		}
		answer = nil
	}
	l.until = ranged.Expiry(l.url, header)
	if known == "" && s.own(l.url) {
		l.until = time.Now() // the address may name the branch, which moves
	}
	f.link.Store(&l)
	return answer, l, nil
}

// plainTag returns the hash that identifies a file: the one of a file in LFS or Xet, or else the
// ETag.
func plainTag(header http.Header) string {
	tag := cmp.Or(header.Get("X-Linked-Etag"), header.Get("ETag"))
	return ranged.PlainTag(strings.TrimPrefix(tag, "W/"))
}

// errRefused reports a server that refuses a signature, which may have expired.
var errRefused = errors.New("the Hub redirects to it: check that clocks are right, and proxies on the way")

// fetch requests a range from a place.
func (s *store) fetch(ctx context.Context, l link, span http.Header, off, n int64) (*http.Response, link, error) {
	answer, err := s.send(ctx, http.MethodGet, l.url, span)
	if err != nil {
		return nil, l, err
	}
	switch status := answer.StatusCode; {
	case status/100 == 2:
		if s.own(l.url) {
			l.tag = "" // the answer has it
		}
		l, err = l.body(answer, off, n)
		return answer, l, err
	case status/100 == 3 || !s.own(l.url) && (status == 400 || status == 401 || status == 403 || status == 404 ||
		status == 410):
		err = fmt.Errorf("%w; %w", ranged.Answer{Status: status, Message: "at " + answer.Request.URL.Host}, errRefused)
	default:
		err = s.explain(answer)
	}
	answer.Body.Close()
	return nil, l, err
}

// body checks the header of an answer with bytes, and returns what it adds to the link. It closes
// the body if it returns an error.
func (l link) body(answer *http.Response, off, n int64) (link, error) {
	meta, err := ranged.RangeMeta(answer, off, n)
	encoding := answer.Header.Get("Content-Encoding")
	switch {
	case err != nil:
		return l, err
	case encoding != "" && encoding != "identity":
		err = errors.New("the server compresses what it sends, though it was asked not to; check HF_ENDPOINT, and proxies on the way")
	case l.size >= 0 && l.size != meta.Size:
		err = fmt.Errorf("%w: the Hub gives it a size of %d bytes, and the answer one of %d", objstore.ErrChanged,
			l.size, meta.Size)
	}
	if err != nil {
		answer.Body.Close()
		return l, err
	}
	l.size = meta.Size
	if l.tag == "" {
		l.tag = plainTag(answer.Header)
	}
	return l, nil
}
