package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server implements in memory the part of S3 that the store uses, for one bucket. hook sees every
// request first and may answer it by returning true.
type server struct {
	*httptest.Server

	mu            sync.Mutex
	objects       map[string]stored
	uploads       map[string]*multipart
	next          int
	seen          []string // method, path and query of every request
	unconditional bool     // the conditions of puts are ignored
	atCompletion  bool     // those of completions alone
	notModified   bool     // completions under a condition are answered with 304, as S3Mock does
	torn          *pairs   // commits check the condition, give up the lock, and then write
	hook          func(w http.ResponseWriter, r *http.Request) bool
}

// pairs lets two goroutines go on together. One that stays alone goes on after a while.
type pairs struct {
	of      func(r *http.Request) bool // which requests
	meeting chan struct{}              // unbuffered
}

func (p *pairs) wait() {
	select {
	case p.meeting <- struct{}{}:
	case <-p.meeting:
	case <-time.After(5 * time.Second):
	}
}

type stored struct {
	data []byte
	etag string
	at   time.Time
	tag  string // x-amz-meta-shardtool-upload
}

type multipart struct {
	key   string
	tag   string
	parts map[int][]byte
}

func newServer(t *testing.T) *server {
	s := unstarted(t)
	s.Start()
	return s
}

// newTLSServer returns a server that offers HTTP/2, and has the default client of a store trust it.
func newTLSServer(t *testing.T) *server {
	s := unstarted(t)
	s.EnableHTTP2 = true
	s.StartTLS()
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", authority)
	return s
}

// unstarted returns a server that is not started yet. The test closes it at its end.
func unstarted(t *testing.T) *server {
	s := &server{objects: map[string]stored{}, uploads: map[string]*multipart{}}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(s.Close)
	return s
}

// setHook changes the hook while requests may be in flight.
func (s *server) setHook(hook func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

func (s *server) requests(method string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if strings.HasPrefix(r, method+" ") {
			found = append(found, r)
		}
	}
	return found
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	hook := s.hook
	s.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != "bucket" {
		refuse(w, r, http.StatusNotFound, "NoSuchBucket")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	switch {
	case key == "":
		s.list(w, query)
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.next++
		id := fmt.Sprint("upload-", s.next)
		s.uploads[id] = &multipart{key: key, tag: r.Header.Get("x-amz-meta-shardtool-upload"), parts: map[int][]byte{}}
		fmt.Fprintf(w, `<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>`, id)
	case r.Method == http.MethodPost:
		s.complete(w, r, key, query.Get("uploadId"), body)
	case r.Method == http.MethodPut && query.Has("uploadId"):
		upload := s.uploads[query.Get("uploadId")]
		number, err := strconv.Atoi(query.Get("partNumber"))
		if upload == nil || err != nil {
			refuse(w, r, http.StatusNotFound, "NoSuchUpload")
			return
		}
		upload.parts[number] = body
		w.Header().Set("ETag", tagOf(body))
	case r.Method == http.MethodPut:
		s.put(w, r, key, body, r.Header.Get("x-amz-meta-shardtool-upload"))
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		delete(s.uploads, query.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.get(w, r, key)
	}
}

// put checks the request's condition and stores the object. The caller holds the lock.
func (s *server) put(w http.ResponseWriter, r *http.Request, key string, data []byte, tag string) bool {
	old, there := s.objects[key]
	if !s.unconditional {
		match := r.Header.Get("If-Match")
		switch {
		case r.Header.Get("If-None-Match") == "*" && there, match != "" && there && old.etag != match:
			refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
			return false
		case match != "" && !there:
			refuse(w, r, http.StatusNotFound, "NoSuchKey")
			return false
		}
	}
	if s.torn != nil && s.torn.of(r) {
		s.mu.Unlock()
		s.torn.wait()
		s.mu.Lock()
	}
	// The ETag is not a digest, as with SSE-KMS, so that two puts of the same bytes have different
	// ones.
	s.next++
	etag := fmt.Sprintf(`"%s-%d"`, strings.Trim(tagOf(data), `"`), s.next)
	s.objects[key] = stored{data: data, etag: etag, at: time.Now(), tag: tag}
	w.Header().Set("ETag", etag)
	return true
}

func (s *server) complete(w http.ResponseWriter, r *http.Request, key, id string, body []byte) {
	upload := s.uploads[id]
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if upload == nil {
		refuse(w, r, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if err := xml.Unmarshal(body, &asked); err != nil {
		refuse(w, r, http.StatusBadRequest, "MalformedXML")
		return
	}
	var data []byte
	last := 0
	for _, part := range asked.Part {
		bytes, ok := upload.parts[part.PartNumber]
		if !ok || part.PartNumber <= last || tagOf(bytes) != part.ETag {
			refuse(w, r, http.StatusBadRequest, "InvalidPart")
			return
		}
		last = part.PartNumber
		data = append(data, bytes...)
	}
	if s.notModified && (r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != "") {
		refuse(w, r, http.StatusNotModified, "NotModified")
		return
	}
	if s.atCompletion {
		r.Header.Del("If-None-Match")
		r.Header.Del("If-Match")
	}
	if s.put(w, r, key, data, upload.tag) {
		delete(s.uploads, id)
		etag := s.objects[key].etag
		w.Header().Del("ETag")
		fmt.Fprintf(w, `<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>`, etag)
	}
}

func (s *server) get(w http.ResponseWriter, r *http.Request, key string) {
	object, ok := s.objects[key]
	if !ok {
		refuse(w, r, http.StatusNotFound, "NoSuchKey")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != object.etag {
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if object.tag != "" {
		w.Header().Set("x-amz-meta-shardtool-upload", object.tag)
	}
	w.Header().Set("ETag", object.etag)
	w.Header().Set("Content-Type", "binary/octet-stream")
	var first, last int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 && first >= len(object.data) {
		w.Header().Del("ETag")
		refuse(w, r, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	http.ServeContent(w, r, "", object.at, bytes.NewReader(object.data))
}

func (s *server) list(w http.ResponseWriter, query url.Values) {
	prefix, after := query.Get("prefix"), query.Get("continuation-token")
	const page = 3
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []struct {
			Key, ETag    string
			Size         int
			LastModified time.Time
		}
	}
	out.EncodingType = query.Get("encoding-type")
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || after != "" && key <= after {
			continue
		}
		if len(out.Contents) == page {
			out.IsTruncated = true
			break
		}
		out.NextContinuationToken = key
		object := s.objects[key]
		out.Contents = append(out.Contents, struct {
			Key, ETag    string
			Size         int
			LastModified time.Time
		}{url.QueryEscape(key), object.etag, len(object.data), object.at})
	}
	if !out.IsTruncated {
		out.NextContinuationToken = ""
	}
	_ = xml.NewEncoder(w).Encode(out)
}

func tagOf(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// refuse answers as S3 does: with XML, except to HEAD.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	refuseSaying(w, r, status, code, code)
}

func refuseSaying(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
	}
}
