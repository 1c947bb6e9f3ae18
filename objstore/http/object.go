package httpstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Get implements ranged.Backend.
func (s *store) Get(ctx context.Context, name string, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	header := ranged.Range(off, n)
	if etag != "" {
		header.Set("If-Range", etag)
	}
	answer, err := s.send(ctx, http.MethodGet, name, header)
	if err != nil {
		return nil, ranged.Meta{}, err
	}
	meta, err := rangeMeta(answer, off, n, etag)
	if err != nil {
		answer.Body.Close()
		return nil, ranged.Meta{}, err
	}
	return answer.Body, meta, nil
}

// rangeMeta checks the header of an answer to a range request.
func rangeMeta(answer *http.Response, off, n int64, etag string) (ranged.Meta, error) {
	meta, known := validator(answer.Header)
	contentRange := answer.Header.Get("Content-Range")
	if answer.StatusCode == http.StatusOK {
		contentRange = ""
		if etag != "" && known == nil && meta.ETag != etag {
			return ranged.Meta{}, objstore.ErrChanged // If-Range: the server sends the entire new object
		}
	} else if contentRange == "" {
		return ranged.Meta{}, fmt.Errorf("%w: the answer has status 206 and no Content-Range: several ranges at once, or none; "+
			"use a server that serves single ranges", objstore.ErrNoRanges)
	}
	size, err := ranged.CheckBody(off, n, contentRange, answer.ContentLength, answer.Header.Get("Content-Type"))
	if err != nil {
		return ranged.Meta{}, err
	}
	if known != nil {
		return ranged.Meta{}, known
	}
	meta.Size = size
	return meta, nil
}

// Head describes an object by a HEAD request, and by a GET of one byte if the server does not
// answer HEAD.
func (s *store) Head(ctx context.Context, name string) (ranged.Meta, error) {
	answer, err := s.send(ctx, http.MethodHead, name, nil)
	if err == nil {
		answer.Body.Close()
		meta, err := validator(answer.Header)
		if err != nil {
			return ranged.Meta{}, err
		}
		if answer.ContentLength >= 0 {
			meta.Size = answer.ContentLength
			return meta, nil
		}
	} else if refused, ok := errors.AsType[*refusal](err); !ok || refused.status == http.StatusUnauthorized {
		return ranged.Meta{}, err
	}
	answer, err = s.send(ctx, http.MethodGet, name, http.Header{"Range": {"bytes=0-0"}})
	if err != nil {
		return ranged.Meta{}, err
	}
	answer.Body.Close()
	return rangeMeta(answer, 0, 1, "")
}

// send sends one request. It returns an answer of status 200 or 206; the caller closes the body.
func (s *store) send(ctx context.Context, method, name string, header http.Header) (*http.Response, error) {
	u := s.base
	var escaped strings.Builder
	for i, element := range strings.Split(name, "/") {
		if i > 0 {
			escaped.WriteByte('/')
		}
		escaped.WriteString(url.PathEscape(element))
	}
	base := s.base.EscapedPath()
	u.Path, u.RawPath = s.base.Path+name, base+escaped.String()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be part of a URL", objstore.ErrName)
	}
	for _, from := range []http.Header{s.header, header} {
		for key, values := range from {
			request.Header[http.CanonicalHeaderKey(key)] = values
		}
	}
	answer, err := s.Client.Send(request)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(answer); err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// refusal is a final status without a more specific error.
type refusal struct {
	status int
	advice string
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("the server answers %d %s", r.status, http.StatusText(r.status))
	if r.advice != "" {
		text += "; " + r.advice
	}
	return text
}

func checkAnswer(answer *http.Response) error {
	status := answer.StatusCode
	switch {
	case status == http.StatusOK || status == http.StatusPartialContent:
		if encoding := answer.Header.Get("Content-Encoding"); encoding != "" &&
			!strings.EqualFold(encoding, "identity") {
			return errors.New("the server compresses what it sends, though it was asked not to; switch that off for the data set")
		}
		return nil
	case ranged.TransientStatus(status):
		return &ranged.Transient{
			Err:       &refusal{status: status},
			After:     ranged.RetryAfter(answer.Header),
			Throttled: ranged.Throttling(status),
			Answered:  true,
		}
	case status == http.StatusNotFound || status == http.StatusGone:
		return fs.ErrNotExist
	case status == http.StatusPreconditionFailed:
		return objstore.ErrChanged
	case status == http.StatusRequestedRangeNotSatisfiable:
		return io.ErrUnexpectedEOF
	case status == http.StatusUnauthorized:
		return &refusal{status, "give a user and password in the address, or a header that authorizes"}
	case status == http.StatusForbidden:
		return &refusal{status, "these credentials may not read it, or the signature in the address has expired"}
	case status == http.StatusProxyAuthRequired:
		return &refusal{status, "give the proxy's user and password in HTTPS_PROXY"}
	case status/100 == 3:
		return &refusal{status, "the redirect names no address to follow: check the one given"}
	case status == http.StatusBadRequest && answer.Request.URL.Scheme == "http":
		return &refusal{status, ranged.PerhapsTLS}
	}
	return &refusal{status: status}
}

// validator returns what identifies the version: a strong ETag, or else the modification time.
func validator(header http.Header) (ranged.Meta, error) {
	var meta ranged.Meta
	modified := header.Get("Last-Modified")
	if at, err := http.ParseTime(modified); err == nil {
		meta.ModTime = at
		meta.ETag = modified
	}
	if etag := header.Get("ETag"); len(etag) > 2 && etag[0] == '"' {
		meta.ETag = etag
	}
	if meta.ETag != "" {
		return meta, nil
	}
	if ranged.IsPage(header.Get("Content-Type")) {
		return meta, ranged.ErrPage
	}
	return meta, errors.New("the server sends neither a strong ETag nor Last-Modified, so a replaced object would not be " +
		"noticed; use one that does")
}
