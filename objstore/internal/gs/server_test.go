package gs_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server implements in memory the part of Google Cloud Storage that the store uses, as these pages
// document it:
//
//	conditions    https://cloud.google.com/storage/docs/request-preconditions
//	uploads       https://cloud.google.com/storage/docs/performing-resumable-uploads
//	checksums     https://cloud.google.com/storage/docs/data-validation
//	errors        https://cloud.google.com/storage/docs/json_api/v1/status-codes
//	generations   https://cloud.google.com/storage/docs/object-versioning
//
// hook sees every request first and may answer it by returning true.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string]*stored
	sessions map[string]*session
	next     int64
	seen     []string                 // method, path and query of every request
	keeps    func(size int) int       // how many bytes of a chunk the server keeps; nil for all
	damage   func(data []byte) []byte // alters what arrives
	token    string                   // "" for no authorization
	hook     func(w http.ResponseWriter, r *http.Request) bool
}

type stored struct {
	data       []byte
	generation int64
	at         time.Time
	tag        map[string]string
	encoding   string
}

type session struct {
	name, match string
	tag         map[string]string
	data        []byte
}

func unstarted(t *testing.T) *server {
	s := &server{objects: map[string]*stored{}, sessions: map[string]*session{}, next: 1700000000000000}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(s.Close)
	return s
}

func newServer(t *testing.T) *server {
	s := unstarted(t)
	s.Start()
	return s
}

func (s *server) setHook(hook func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

func (s *server) requests(prefix string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if strings.HasPrefix(r, prefix) {
			found = append(found, r)
		}
	}
	return found
}

// refuse answers with the JSON of an error.
func refuse(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": status, "message": message, "errors": []any{map[string]any{"message": message, "domain": "global", "reason": reason}},
	}})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	hook := s.hook
	s.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damage != nil && r.ContentLength > 0 {
		body = s.damage(body)
	}
	query := r.URL.Query()
	path, upload := strings.CutPrefix(r.URL.EscapedPath(), "/upload")
	rest, ok := strings.CutPrefix(path, "/storage/v1/b/")
	bucket, name, _ := strings.Cut(rest, "/o")
	name, err = url.PathUnescape(strings.TrimPrefix(name, "/"))
	switch id := query.Get("upload_id"); {
	case !ok || err != nil:
		refuse(w, http.StatusBadRequest, "invalid", "Invalid path")
	case s.token != "" && id == "" && r.Header.Get("Authorization") != "Bearer "+s.token:
		refuse(w, http.StatusUnauthorized, "authError", "Invalid Credentials")
	case bucket != "bucket":
		refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
	case upload && id != "":
		s.session(w, r, id, body)
	case upload && query.Get("uploadType") == "resumable":
		s.begin(w, r, query, body)
	case upload:
		s.multipart(w, r, query, body)
	case name == "":
		s.list(w, query)
	case r.Method == http.MethodDelete:
		if s.objects[name] == nil {
			refuse(w, http.StatusNotFound, "notFound", "No such object: bucket/"+name)
			return
		}
		delete(s.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case query.Get("alt") == "media":
		s.media(w, r, name, query.Get("generation"))
	case s.objects[name] == nil:
		refuse(w, http.StatusNotFound, "notFound", "No such object: bucket/"+name)
	default:
		s.describe(w, name)
	}
}

func crcOf(data []byte) string {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func (s *server) resource(name string) map[string]any {
	o := s.objects[name]
	return map[string]any{
		"kind": "storage#object", "name": name, "size": strconv.Itoa(len(o.data)), "generation": strconv.FormatInt(o.generation, 10),
		"updated": o.at.UTC().Format(time.RFC3339Nano), "crc32c": crcOf(o.data), "metadata": o.tag,
	}
}

func (s *server) describe(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(s.resource(name))
}

// put checks the condition and stores the object. The caller holds the lock.
func (s *server) put(w http.ResponseWriter, name, match, crc string, data []byte, tag map[string]string) bool {
	if match != "" {
		current := "0"
		if o := s.objects[name]; o != nil {
			current = strconv.FormatInt(o.generation, 10)
		}
		if match != current {
			refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
			return false
		}
	}
	if crc != "" && crc != crcOf(data) {
		refuse(w, http.StatusBadRequest, "invalid", fmt.Sprintf("Provided CRC32C %q doesn't match calculated CRC32C %q.", crc, crcOf(data)))
		return false
	}
	s.next++
	s.objects[name] = &stored{data: data, generation: s.next, at: time.Now(), tag: tag}
	s.describe(w, name)
	return true
}

type description struct {
	Name     string
	CRC32C   string
	Metadata map[string]string
}

func (s *server) multipart(w http.ResponseWriter, r *http.Request, query url.Values, body []byte) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" {
		refuse(w, http.StatusBadRequest, "invalid", "no multipart/related")
		return
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	var parts [2][]byte
	for i := range parts {
		part, err := reader.NextRawPart()
		if err == nil {
			parts[i], err = io.ReadAll(part)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, "invalid", "Invalid multipart request")
			return
		}
	}
	var d description
	if err := json.Unmarshal(parts[0], &d); err != nil {
		refuse(w, http.StatusBadRequest, "parseError", "Parse Error")
		return
	}
	s.put(w, d.Name, query.Get("ifGenerationMatch"), d.CRC32C, parts[1], d.Metadata)
}

func (s *server) begin(w http.ResponseWriter, r *http.Request, query url.Values, body []byte) {
	var d description
	if err := json.Unmarshal(body, &d); err != nil {
		refuse(w, http.StatusBadRequest, "parseError", "Parse Error")
		return
	}
	s.next++
	id := fmt.Sprint("marked-upload-", s.next)
	s.sessions[id] = &session{name: d.Name, match: query.Get("ifGenerationMatch"), tag: d.Metadata}
	w.Header().Set("Location", "/upload/storage/v1/b/bucket/o?uploadType=resumable&upload_id="+id)
}

// session takes a chunk, tells how much it has, or is cancelled.
func (s *server) session(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	up := s.sessions[id]
	if up == nil {
		refuse(w, http.StatusGone, "uploadGone", "The requested upload session is gone.")
		return
	}
	if r.Method == http.MethodDelete {
		delete(s.sessions, id)
		w.WriteHeader(499)
		return
	}
	span, total, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "/")
	if span != "*" {
		var first, last int
		n, _ := fmt.Sscanf(span, "%d-%d", &first, &last)
		if n != 2 || last-first+1 != len(body) || first > len(up.data) || total == "*" && len(body)%(256<<10) != 0 {
			refuse(w, http.StatusBadRequest, "invalid", "Invalid Content-Range")
			return
		}
		if s.keeps != nil {
			body = body[:s.keeps(len(body))]
		}
		up.data = append(up.data[:first], body...)
	}
	if total == strconv.Itoa(len(up.data)) {
		crc, _ := strings.CutPrefix(r.Header.Get("X-Goog-Hash"), "crc32c=")
		s.put(w, up.name, up.match, crc, up.data, up.tag)
		delete(s.sessions, id)
		return
	}
	if len(up.data) > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(up.data)-1))
	}
	if r.Header.Get("X-Guploader-No-308") == "yes" {
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return
	}
	w.WriteHeader(http.StatusPermanentRedirect)
}

func (s *server) media(w http.ResponseWriter, r *http.Request, name, generation string) {
	o := s.objects[name]
	if o == nil || generation != "" && generation != strconv.FormatInt(o.generation, 10) {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "No such object: bucket/%s", name)
		return
	}
	w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	w.Header().Set("X-Goog-Hash", "crc32c="+crcOf(o.data)+",md5=1B2M2Y8AsgTpgAmY7PhCfg==")
	w.Header().Set("X-Goog-Stored-Content-Encoding", cmpOr(o.encoding, "identity"))
	w.Header().Set("Content-Type", "application/octet-stream")
	if o.encoding != "" { // decompressed, and without ranges
		_, _ = w.Write(o.data)
		return
	}
	http.ServeContent(w, r, "", o.at, bytes.NewReader(o.data))
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (s *server) list(w http.ResponseWriter, query url.Values) {
	const page = 3
	var items []any
	next := ""
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(name, query.Get("prefix")) || name <= query.Get("pageToken") && query.Has("pageToken") {
			continue
		}
		if len(items) == page {
			break
		}
		items = append(items, s.resource(name))
		if next = ""; len(items) == page {
			next = name
		}
	}
	out := map[string]any{"kind": "storage#objects"}
	if items != nil {
		out["items"] = items
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(out)
}
