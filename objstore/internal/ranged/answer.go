package ranged

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Answer is a refusal by a server, reduced to what may be shown.
type Answer struct {
	Status  int
	Code    string
	Message string
	Request string // the request's id, for the provider's support
	After   time.Duration
}

// Error returns the refusal in words: "the server answers 403 AccessDenied: Access Denied (request
// 4442587FB7D0A2F9)".
func (a Answer) Error() string {
	text := fmt.Sprintf("the server answers %d", a.Status)
	if a.Code != "" {
		text += " " + a.Code
	}
	if a.Message != "" && a.Message != a.Code {
		text += ": " + a.Message
	}
	if a.Request != "" {
		text += " (request " + a.Request + ")"
	}
	return text
}

// NoHead reports whether err is a refusal of a HEAD request by a server or a proxy that may answer a
// GET. If it does not, its answer explains more, for it has a body.
func NoHead(err error) bool {
	a, _ := errors.AsType[Answer](err)
	return a.Status == http.StatusForbidden || a.Status == http.StatusMethodNotAllowed ||
		a.Status == http.StatusNotImplemented
}

// Transient returns the error of an answer after which a retry may succeed.
func (a Answer) Transient() *Transient {
	return &Transient{Err: a, After: a.After, Throttled: Throttling(a.Status), Answered: true}
}

// Advise returns the refusal as an error, with what to do about it if that is known.
func (a Answer) Advise(advice string) error {
	if advice == "" {
		return a
	}
	return fmt.Errorf("%w; %s", a, advice)
}

// ErrUnreadable reports a successful answer that broke off.
var ErrUnreadable = &Transient{Answered: true,
	Err: errors.New("the answer cannot be read: it broke off, or something " +
		"between here and the store answers in its place (check the endpoint, and the proxy and its login)")}

// Decode parses an answer by json.Unmarshal or xml.Unmarshal, and closes its body. An answer that
// is complete and something else is final.
func Decode(answer *http.Response, into any, unmarshal func([]byte, any) error) error {
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20)) // a page of a list has far less
	if err != nil {
		return ErrUnreadable
	}
	switch err := unmarshal(text, into); {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "unexpected e"): // unexpected end of JSON input, unexpected EOF
		return ErrUnreadable
	default:
		return fmt.Errorf("the answer is not one of the store (%s); check the endpoint, and the proxy and its login",
			Scrub(err.Error()))
	}
}

// PlainTag returns an ETag without quotes. Some servers send it without.
func PlainTag(tag string) string { return strings.Trim(tag, `"`) }

// Range returns the header that asks for n bytes from off on.
func Range(off, n int64) http.Header {
	return http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+n-1)}}
}

// Castagnoli is the table of CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is an algorithm by which stores check objects.
type Checksum struct {
	Name string // for messages
	New  func() hash.Hash
}

// The algorithms of several stores.
var (
	CRC32C = Checksum{"CRC32C", func() hash.Hash { return crc32.New(Castagnoli) }}
	MD5    = Checksum{"MD5", md5.New}
)

// Sum returns the checksum that a store gives in base64, or nil if it is malformed.
func (c Checksum) Sum(text string) *objstore.Sum {
	want, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(want) != c.New().Size() {
		return nil
	}
	return &objstore.Sum{Name: c.Name, Want: want, New: c.New}
}

// RangeMeta checks the header of an answer to a range request by [CheckBody], and returns the size
// and the time of the object. It closes the body if it returns an error.
func RangeMeta(answer *http.Response, off, n int64) (meta Meta, err error) {
	header := answer.Header
	meta.ModTime, _ = http.ParseTime(header.Get("Last-Modified")) // if there is one
	meta.Size, err = CheckBody(off, n, header.Get("Content-Range"), answer.ContentLength, header.Get("Content-Type"))
	if err != nil {
		answer.Body.Close()
	}
	return meta, err
}

// Clean cuts the text at the first byte that does not belong in a code, a region or an id.
func Clean(text string) string {
	const most = 80
	for i, c := range []byte(text) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if i >= most || !letter && !strings.ContainsRune("-_./+=:", rune(c)) {
			return text[:i]
		}
	}
	return text
}

// Secrets remembers credentials, so that they can be removed from error texts.
type Secrets struct {
	mu   sync.Mutex
	last []string
}

// Remember keeps the values of the last few rotations, because an error may concern a request that
// was signed earlier.
func (s *Secrets) Remember(values ...string) {
	const most = 12
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range values {
		if value != "" && !slices.Contains(s.last, value) {
			s.last = append(s.last, value)
		}
	}
	s.last = s.last[max(0, len(s.last)-most):]
}

// Redact removes credentials, user names, passwords and query strings from a text that came from
// outside, and limits its length.
func (s *Secrets) Redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range s.last {
		text = strings.ReplaceAll(text, value, "[secret]")
	}
	return Scrub(text)
}
