// Package gsserver implements in memory the part of Google Cloud Storage that the store uses, as
// these pages document it:
//
//	conditions    https://cloud.google.com/storage/docs/request-preconditions
//	uploads       https://cloud.google.com/storage/docs/uploading-objects
//	composition   https://cloud.google.com/storage/docs/composite-objects
//	checksums     https://cloud.google.com/storage/docs/data-validation
//	errors        https://cloud.google.com/storage/docs/json_api/v1/status-codes
//	generations   https://cloud.google.com/storage/docs/object-versioning
package gsserver

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/storetest/fake"
)

// Server is such a server, with the bucket "bucket".
type Server struct {
	*fake.Server

	Objects map[string]*Stored
	Token   string // "" for no authorization

	// Versioned keeps in Versions what is replaced and deleted, and Soft in SoftDeleted what would be
	// gone, the oldest of a name first. Locked returns the reason for which a generation is not
	// deleted or replaced, or "".
	Versioned, Soft       bool
	Versions, SoftDeleted map[string][]*Stored
	Locked                func(name string, generation int64) string

	next int64
}

// Stored is an object.
type Stored struct {
	Data       []byte
	Generation int64
	At         time.Time
	Tag        map[string]string
	Encoding   string
	Deleted    time.Time // of one in Versions or SoftDeleted
	crc        string
}

// Unstarted returns a server that the test starts and that ends with it.
func Unstarted(t testing.TB) *Server {
	s := &Server{Objects: map[string]*Stored{}, Versions: map[string][]*Stored{}, SoftDeleted: map[string][]*Stored{},
		next: 1700000000000000}
	s.Server = fake.Unstarted(t, s.serve)
	return s
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	s := Unstarted(t)
	s.Start()
	return s
}

// Refuse answers with the JSON of an error.
func Refuse(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []any{map[string]any{"message": message, "domain": "global", "reason": reason}},
	}})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := fake.Body(r)
	if err != nil {
		return
	}
	s.Mu.Lock()
	release := sync.OnceFunc(s.Mu.Unlock)
	defer release()
	query := r.URL.Query()
	path, upload := strings.CutPrefix(r.URL.EscapedPath(), "/upload")
	rest, ok := strings.CutPrefix(path, "/storage/v1/b/")
	bucket, name, _ := strings.Cut(rest, "/o")
	name, err = url.PathUnescape(strings.TrimPrefix(name, "/"))
	composed := strings.HasSuffix(name, "/compose") && r.Method == http.MethodPost && !upload
	switch {
	case !ok || err != nil:
		Refuse(w, http.StatusBadRequest, "invalid", "Invalid path")
	case s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token:
		Refuse(w, http.StatusUnauthorized, "authError", "Invalid Credentials")
	case bucket != "bucket":
		Refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
	case upload && query.Get("uploadType") != "multipart":
		Refuse(w, http.StatusBadRequest, "invalid", "This server knows no other uploads than multipart")
	case composed:
		s.compose(w, query, strings.TrimSuffix(name, "/compose"), body)
	case upload:
		s.multipart(w, r, query, body)
	case name == "":
		s.list(w, query)
	case r.Method == http.MethodDelete:
		s.remove(w, name, query.Get("generation"))
	case query.Get("alt") == "media":
		o := s.Objects[name]
		if o != nil {
			o.sum()
		}
		release()
		media(w, r, o, name, query.Get("generation"))
	case s.Objects[name] == nil:
		Refuse(w, http.StatusNotFound, "notFound", "No such object: bucket/"+name)
	default:
		s.describe(w, name)
	}
}

func crcOf(data []byte) string {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// sum returns the CRC-32C. The caller holds the lock.
func (o *Stored) sum() string {
	if o.crc == "" {
		o.crc = crcOf(o.Data)
	}
	return o.crc
}

func (o *Stored) resource(name string) map[string]any {
	at := o.At.UTC().Format(time.RFC3339Nano)
	return map[string]any{
		"kind": "storage#object", "name": name, "size": strconv.Itoa(len(o.Data)),
		"generation": strconv.FormatInt(o.Generation, 10),
		"updated":    at, "timeCreated": at, "crc32c": o.sum(), "metadata": o.Tag,
	}
}

func (s *Server) describe(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(s.Objects[name].resource(name))
}

// locked refuses to change a generation that is locked.
func (s *Server) locked(w http.ResponseWriter, name string, o *Stored) bool {
	reason := ""
	if o != nil && s.Locked != nil {
		reason = s.Locked(name, o.Generation)
	}
	if reason != "" {
		Refuse(w, http.StatusForbidden, reason, "Object 'bucket/"+name+"' is subject to bucket's retention policy or object retention")
	}
	return reason != ""
}

// drop takes an object away, or a version of it. The caller holds the lock.
func (s *Server) drop(name string, o *Stored) {
	live := s.Objects[name] == o
	if live {
		delete(s.Objects, name)
	}
	s.Versions[name] = slices.DeleteFunc(s.Versions[name], func(v *Stored) bool { return v == o })
	if o.Deleted = time.Now(); live && s.Versioned {
		s.Versions[name] = append(s.Versions[name], o)
	} else if s.Soft {
		s.SoftDeleted[name] = append(s.SoftDeleted[name], o)
	}
}

func (s *Server) remove(w http.ResponseWriter, name, generation string) {
	o := s.Objects[name]
	for _, v := range s.Versions[name] {
		if strconv.FormatInt(v.Generation, 10) == generation {
			o = v
		}
	}
	if o == nil || generation != "" && generation != strconv.FormatInt(o.Generation, 10) {
		Refuse(w, http.StatusNotFound, "notFound", "No such object: bucket/"+name)
	} else if !s.locked(w, name, o) {
		s.drop(name, o)
		w.WriteHeader(http.StatusNoContent)
	}
}

// put checks the condition and the CRC-32C, and stores the object. The caller holds the lock, which
// is free while the sum is computed.
func (s *Server) put(w http.ResponseWriter, name, match, crc string, pieces [][]byte, tag map[string]string) {
	s.Mu.Unlock()
	data := pieces[0]
	if len(pieces) > 1 {
		data = slices.Concat(pieces...)
	}
	own := crcOf(data)
	s.Mu.Lock()
	if match != "" {
		current := "0"
		if o := s.Objects[name]; o != nil {
			current = strconv.FormatInt(o.Generation, 10)
		}
		if match != current {
			Refuse(w, http.StatusPreconditionFailed, "conditionNotMet",
				"At least one of the pre-conditions you specified did not hold.")
			return
		}
	}
	if crc != "" && crc != own {
		Refuse(w, http.StatusBadRequest, "invalid",
			fmt.Sprintf("Provided CRC32C %q doesn't match calculated CRC32C %q.", crc, own))
		return
	}
	if o := s.Objects[name]; o != nil {
		if s.locked(w, name, o) {
			return
		}
		s.drop(name, o)
	}
	s.next++
	s.Objects[name] = &Stored{Data: data, Generation: s.next, At: time.Now(), Tag: tag, crc: own}
	s.describe(w, name)
}

type description struct {
	Name     string
	CRC32C   string
	Metadata map[string]string
}

func (s *Server) multipart(w http.ResponseWriter, r *http.Request, query url.Values, body []byte) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" {
		Refuse(w, http.StatusBadRequest, "invalid", "no multipart/related")
		return
	}
	// A reader of package multipart would look at each byte, and copy it twice.
	line := []byte("\r\n--" + params["boundary"])
	body, whole := bytes.CutSuffix(body, append(line, "--\r\n"...))
	first, second, two := bytes.Cut(body, append(line, "\r\n"...))
	_, first, described := bytes.Cut(first, []byte("\r\n\r\n"))
	_, data, headed := bytes.Cut(second, []byte("\r\n\r\n"))
	if !whole || !two || !described || !headed {
		Refuse(w, http.StatusBadRequest, "invalid", "Invalid multipart request")
		return
	}
	var d description
	if err := json.Unmarshal(first, &d); err != nil {
		Refuse(w, http.StatusBadRequest, "parseError", "Parse Error")
		return
	}
	s.put(w, d.Name, query.Get("ifGenerationMatch"), d.CRC32C, [][]byte{data}, d.Metadata)
}

// compose makes an object of at most 32 others.
func (s *Server) compose(w http.ResponseWriter, query url.Values, name string, body []byte) {
	var request struct {
		SourceObjects []struct{ Name, Generation string }
		Destination   description
	}
	if err := json.Unmarshal(body, &request); err != nil {
		Refuse(w, http.StatusBadRequest, "parseError", "Parse Error")
		return
	}
	if n := len(request.SourceObjects); n == 0 || n > 32 {
		Refuse(w, http.StatusBadRequest, "invalid", "The number of source components provided is not between 1 and 32.")
		return
	}
	var data [][]byte
	for _, source := range request.SourceObjects {
		o := s.Objects[source.Name]
		if o == nil || source.Generation != "" && source.Generation != strconv.FormatInt(o.Generation, 10) {
			Refuse(w, http.StatusNotFound, "notFound", "Object "+source.Name+" not found.")
			return
		}
		data = append(data, o.Data)
	}
	s.put(w, name, query.Get("ifGenerationMatch"), request.Destination.CRC32C, data, request.Destination.Metadata)
}

func media(w http.ResponseWriter, r *http.Request, o *Stored, name, generation string) {
	if o == nil || generation != "" && generation != strconv.FormatInt(o.Generation, 10) {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "No such object: bucket/%s", name)
		return
	}
	w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.Generation, 10))
	w.Header().Set("X-Goog-Hash", "crc32c="+o.crc+",md5=1B2M2Y8AsgTpgAmY7PhCfg==")
	w.Header().Set("X-Goog-Stored-Content-Encoding", cmpOr(o.Encoding, "identity"))
	w.Header().Set("Content-Type", "application/octet-stream")
	if o.Encoding != "" { // decompressed, and without ranges
		_, _ = w.Write(o.Data)
		return
	}
	http.ServeContent(w, r, "", o.At, bytes.NewReader(o.Data))
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// entries returns what a list with versions or soft-deleted objects has.
func (s *Server) entries(query url.Values) (all []any) {
	names := map[string]bool{}
	for _, of := range []map[string][]*Stored{s.Versions, s.SoftDeleted} {
		for name := range of {
			names[name] = true
		}
	}
	for name := range s.Objects {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !strings.HasPrefix(name, query.Get("prefix")) {
			continue
		}
		add := func(o *Stored, times map[string]time.Duration) {
			entry := o.resource(name)
			for key, later := range times {
				entry[key] = o.Deleted.Add(later).UTC().Format(time.RFC3339Nano)
			}
			all = append(all, entry)
		}
		if query.Get("softDeleted") == "true" {
			for _, o := range s.SoftDeleted[name] {
				add(o, map[string]time.Duration{"softDeleteTime": 0, "hardDeleteTime": 7 * 24 * time.Hour})
			}
			continue
		}
		for _, o := range s.Versions[name] {
			add(o, map[string]time.Duration{"timeDeleted": 0})
		}
		if o := s.Objects[name]; o != nil {
			add(o, nil)
		}
	}
	return all
}

func (s *Server) list(w http.ResponseWriter, query url.Values) {
	const page = 3
	if query.Has("versions") || query.Has("softDeleted") {
		all, from := s.entries(query), 0
		_, _ = fmt.Sscan(query.Get("pageToken"), &from)
		out := map[string]any{"items": all[from:min(len(all), from+page)]}
		if from+page < len(all) {
			out["nextPageToken"] = fmt.Sprint(from + page)
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_ = json.NewEncoder(w).Encode(out)
		return
	}
	var items []any
	next := ""
	for _, name := range slices.Sorted(maps.Keys(s.Objects)) {
		if !strings.HasPrefix(name, query.Get("prefix")) || name <= query.Get("pageToken") && query.Has("pageToken") {
			continue
		}
		if len(items) == page {
			break
		}
		items = append(items, s.Objects[name].resource(name))
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
