// Package s3server implements in memory the part of S3 that the store uses, for the bucket
// "bucket". It verifies no signatures. These pages below
// https://docs.aws.amazon.com/AmazonS3/latest document what it answers:
//
//	conditions    userguide/conditional-requests.html
//	uploads       API/API_CreateMultipartUpload.html, API/API_CompleteMultipartUpload.html
//	lists         API/API_ListObjectsV2.html, API/API_ListObjectVersions.html
//	versions      userguide/Versioning.html, userguide/object-lock.html
//	directories   API/API_CreateSession.html, API/API_ListObjectsV2.html
//	errors        API/ErrorResponses.html
package s3server

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"maps"
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

// checksum is the header with the CRC-32C of a part.
const checksum = "X-Amz-Checksum-Crc32c"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Server is such a server.
type Server struct {
	*fake.Server

	Objects       map[string]Stored
	Uploads       map[string]*Upload
	Unconditional bool   // the conditions of puts are ignored
	AtCompletion  bool   // the conditions of completions alone are ignored
	NotModified   bool   // completions under a condition are answered with 304, as S3Mock does
	Checks        bool   // parts have a CRC-32C that is verified, and no MD5
	Directory     bool   // it is the directory bucket DirectoryBucket
	Page          int    // names of a page of a list; 3 if 0
	Torn          *Pairs // commits check the condition, give up the lock, and then write

	// Versioned keeps in Versions what is put and deleted, the newest of a key first. Those that
	// Locked reports are not deleted.
	Versioned bool
	Versions  map[string][]Version
	Locked    func(key, id string) bool
	NoBatch   bool // a request may delete one version

	next int
}

// Pairs lets two goroutines go on together. One that stays alone goes on after a while.
type Pairs struct {
	Of      func(r *http.Request) bool // which requests
	Meeting chan struct{}              // unbuffered
}

func (p *Pairs) wait() {
	select {
	case p.Meeting <- struct{}{}:
	case <-p.Meeting:
	case <-time.After(5 * time.Second):
	}
}

// Stored is an object.
type Stored struct {
	Data []byte
	ETag string
	At   time.Time
	Tag  string // x-amz-meta-shardtool-upload
}

// Version is a version of an object, or a delete marker.
type Version struct {
	Stored
	ID   string
	Mark bool
}

// Upload is an upload in parts.
type Upload struct {
	key   string
	tag   string
	parts map[int]part
}

type part struct {
	data []byte
	etag string
}

// Unstarted returns a server that the test starts and that ends with it.
func Unstarted(t testing.TB) *Server {
	s := &Server{Objects: map[string]Stored{}, Uploads: map[string]*Upload{}, Versions: map[string][]Version{}}
	s.Server = fake.Unstarted(t, s.serve)
	return s
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	s := Unstarted(t)
	s.Start()
	return s
}

// DirectoryBucket is the bucket of a server with Directory. Its lists go backwards.
const DirectoryBucket = "bucket--use1-az4--x-s3"

func (s *Server) bucket() string {
	if s.Directory {
		return DirectoryBucket
	}
	return "bucket"
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if want := s.bucket(); bucket != want {
		Refuse(w, r, http.StatusNotFound, "NoSuchBucket")
		return
	}
	body, err := fake.Body(r)
	if err != nil {
		return
	}
	if want := r.Header.Get("X-Amz-Content-Sha256"); len(want) == 2*sha256.Size &&
		want != fmt.Sprintf("%x", sha256.Sum256(body)) {
		Refuse(w, r, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
		return
	}
	sum := ""
	if s.Checks {
		sum = base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)))
		if want := r.Header.Get(checksum); want != "" && want != sum {
			Refuse(w, r, http.StatusBadRequest, "BadDigest")
			return
		}
	}
	s.Mu.Lock()
	release := sync.OnceFunc(s.Mu.Unlock)
	defer release()
	query := r.URL.Query()
	switch {
	case s.Directory && query.Has("session"):
		fmt.Fprintf(w, `<CreateSessionResult><Credentials><SessionToken>token</SessionToken>`+
			`<SecretAccessKey>secret</SecretAccessKey><AccessKeyId>key</AccessKeyId><Expiration>%s</Expiration>`+
			`</Credentials></CreateSessionResult>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	case s.Directory && key == "" && (query.Has("versions") || strings.TrimSuffix(query.Get("prefix"), "/")+"/" !=
		query.Get("prefix") && query.Get("prefix") != ""):
		Refuse(w, r, http.StatusBadRequest, "InvalidRequest")
	case key == "" && r.Method == http.MethodPost && query.Has("delete"):
		s.deleteVersions(w, r, body)
	case key == "" && query.Has("versions"):
		s.listVersions(w, query)
	case key == "":
		s.list(w, query)
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.next++
		id := fmt.Sprint("upload-", s.next)
		s.Uploads[id] = &Upload{key: key, tag: r.Header.Get("x-amz-meta-shardtool-upload"), parts: map[int]part{}}
		if how := "X-Amz-Checksum-Algorithm"; s.Checks {
			w.Header().Set(how, r.Header.Get(how))
		}
		fmt.Fprintf(w, `<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>`, id)
	case r.Method == http.MethodPost:
		s.complete(w, r, key, query.Get("uploadId"), body)
	case r.Method == http.MethodPut && query.Has("uploadId"):
		upload := s.Uploads[query.Get("uploadId")]
		number, err := strconv.Atoi(query.Get("partNumber"))
		if upload == nil || err != nil {
			Refuse(w, r, http.StatusNotFound, "NoSuchUpload")
			return
		}
		etag := `"` + sum + `"`
		if s.Checks {
			w.Header().Set(checksum, sum)
		} else {
			etag = Tag(body)
		}
		upload.parts[number] = part{body, etag}
		w.Header().Set("ETag", etag)
	case r.Method == http.MethodPut:
		s.put(w, r, key, body, r.Header.Get("x-amz-meta-shardtool-upload"))
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		delete(s.Uploads, query.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete && query.Has("versionId"):
		s.deleteVersion(w, r, key, query.Get("versionId"))
	case r.Method == http.MethodDelete:
		delete(s.Objects, key)
		s.keep(key, Version{Stored: Stored{At: time.Now()}, Mark: true})
		w.WriteHeader(http.StatusNoContent)
	default:
		object, ok := s.Objects[key]
		release()
		get(w, r, object, ok)
	}
}

// put checks the request's condition and stores the object. The caller holds the lock.
func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, data []byte, tag string) bool {
	old, there := s.Objects[key]
	if !s.Unconditional {
		match := r.Header.Get("If-Match")
		switch {
		case r.Header.Get("If-None-Match") == "*" && there, match != "" && there && old.ETag != match:
			Refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
			return false
		case match != "" && !there:
			Refuse(w, r, http.StatusNotFound, "NoSuchKey")
			return false
		}
	}
	if s.Torn != nil && s.Torn.Of(r) {
		s.Mu.Unlock()
		s.Torn.wait()
		s.Mu.Lock()
	}
	// The ETag is not a digest, as with SSE-KMS, so that two puts of the same bytes have different
	// ones.
	s.next++
	digest := "unknown"
	if !s.Checks {
		digest = strings.Trim(Tag(data), `"`)
	}
	etag := fmt.Sprintf(`"%s-%d"`, digest, s.next)
	s.Objects[key] = Stored{Data: data, ETag: etag, At: time.Now(), Tag: tag}
	s.keep(key, Version{Stored: s.Objects[key]})
	w.Header().Set("ETag", etag)
	return true
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, key, id string, body []byte) {
	upload := s.Uploads[id]
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if upload == nil {
		Refuse(w, r, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if err := xml.Unmarshal(body, &asked); err != nil {
		Refuse(w, r, http.StatusBadRequest, "MalformedXML")
		return
	}
	var sent [][]byte
	last := 0
	for _, wanted := range asked.Part {
		p, ok := upload.parts[wanted.PartNumber]
		if !ok || wanted.PartNumber <= last || p.etag != wanted.ETag {
			Refuse(w, r, http.StatusBadRequest, "InvalidPart")
			return
		}
		last = wanted.PartNumber
		sent = append(sent, p.data)
	}
	if s.NotModified && (r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != "") {
		Refuse(w, r, http.StatusNotModified, "NotModified")
		return
	}
	if s.AtCompletion {
		r.Header.Del("If-None-Match")
		r.Header.Del("If-Match")
	}
	if s.put(w, r, key, slices.Concat(sent...), upload.tag) {
		delete(s.Uploads, id)
		etag := s.Objects[key].ETag
		w.Header().Del("ETag")
		fmt.Fprintf(w, `<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>`, etag)
	}
}

func get(w http.ResponseWriter, r *http.Request, object Stored, ok bool) {
	if !ok {
		Refuse(w, r, http.StatusNotFound, "NoSuchKey")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != object.ETag {
		Refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if object.Tag != "" {
		w.Header().Set("x-amz-meta-shardtool-upload", object.Tag)
	}
	w.Header().Set("ETag", object.ETag)
	w.Header().Set("Content-Type", "binary/octet-stream")
	var first, last int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 && first >= len(object.Data) {
		w.Header().Del("ETag")
		Refuse(w, r, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	http.ServeContent(w, r, "", object.At, bytes.NewReader(object.Data))
}

func (s *Server) list(w http.ResponseWriter, query url.Values) {
	prefix, after := query.Get("prefix"), query.Get("continuation-token")
	page := cmp.Or(s.Page, 3)
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
	keys := slices.Sorted(maps.Keys(s.Objects))
	if s.Directory {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) || after != "" && (key <= after) != s.Directory ||
			s.Directory && key == after {
			continue
		}
		if len(out.Contents) == page {
			out.IsTruncated = true
			break
		}
		out.NextContinuationToken = key
		object := s.Objects[key]
		out.Contents = append(out.Contents, struct {
			Key, ETag    string
			Size         int
			LastModified time.Time
		}{url.QueryEscape(key), object.ETag, len(object.Data), object.At})
	}
	if !out.IsTruncated {
		out.NextContinuationToken = ""
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// keep adds a version. The caller holds the lock.
func (s *Server) keep(key string, v Version) {
	if s.Versioned {
		s.next++
		v.ID = fmt.Sprint("v", s.next)
		s.Versions[key] = slices.Insert(s.Versions[key], 0, v)
	}
}

func (s *Server) deleteVersion(w http.ResponseWriter, r *http.Request, key, id string) {
	if s.Locked != nil && s.Locked(key, id) {
		Refuse(w, r, http.StatusForbidden, "AccessDenied")
		return
	}
	s.removeVersion(key, id)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) removeVersion(key, id string) {
	s.Versions[key] = slices.DeleteFunc(s.Versions[key], func(v Version) bool { return v.ID == id })
	if delete(s.Objects, key); len(s.Versions[key]) > 0 && !s.Versions[key][0].Mark {
		s.Objects[key] = s.Versions[key][0].Stored
	}
}

// deleteVersions deletes those that a request lists.
func (s *Server) deleteVersions(w http.ResponseWriter, r *http.Request, body []byte) {
	type object struct {
		Key       string
		VersionID string `xml:"VersionId"`
		Code      string `xml:",omitempty"`
	}
	var in struct{ Object []object }
	var out struct {
		XMLName        xml.Name `xml:"DeleteResult"`
		Deleted, Error []object
	}
	switch err := xml.Unmarshal(body, &in); {
	case s.NoBatch:
		Refuse(w, r, http.StatusBadRequest, "InvalidRequest")
		return
	case err != nil || len(in.Object) > 1000:
		Refuse(w, r, http.StatusBadRequest, "MalformedXML")
		return
	}
	for _, o := range in.Object {
		if s.Locked != nil && s.Locked(o.Key, o.VersionID) {
			o.Code = "AccessDenied"
			out.Error = append(out.Error, o)
			continue
		}
		s.removeVersion(o.Key, o.VersionID)
		out.Deleted = append(out.Deleted, o)
	}
	_ = xml.NewEncoder(w).Encode(out)
}

func (s *Server) listVersions(w http.ResponseWriter, query url.Values) {
	prefix, afterKey, afterID := query.Get("prefix"), query.Get("key-marker"), query.Get("version-id-marker")
	page := cmp.Or(s.Page, 3)
	type entry struct {
		Key          string
		VersionID    string `xml:"VersionId"`
		ETag         string
		IsLatest     bool
		Size         int
		LastModified time.Time
	}
	var out struct {
		XMLName               xml.Name `xml:"ListVersionsResult"`
		EncodingType          string
		IsTruncated           bool
		NextKeyMarker         string `xml:",omitempty"`
		NextVersionIDMarker   string `xml:"NextVersionIdMarker,omitempty"`
		Version, DeleteMarker []entry
	}
	out.EncodingType = query.Get("encoding-type")
	kept := s.Versions
	if !s.Versioned {
		kept = map[string][]Version{}
		for key, o := range s.Objects {
			kept[key] = []Version{{Stored: o, ID: "null"}}
		}
	}
	listing := afterKey == ""
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		for i, v := range kept[key] {
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			if !listing && key <= afterKey {
				listing = key == afterKey && v.ID == afterID
				continue
			}
			if len(out.Version)+len(out.DeleteMarker) == page {
				out.IsTruncated = true
				_ = xml.NewEncoder(w).Encode(out)
				return
			}
			e := entry{url.QueryEscape(key), v.ID, v.ETag, i == 0, len(v.Data), v.At}
			out.NextKeyMarker, out.NextVersionIDMarker = e.Key, e.VersionID
			if v.Mark {
				out.DeleteMarker = append(out.DeleteMarker, e)
			} else {
				out.Version = append(out.Version, e)
			}
		}
	}
	out.NextKeyMarker, out.NextVersionIDMarker = "", ""
	_ = xml.NewEncoder(w).Encode(out)
}

// Tag returns the MD5 of data as an ETag.
func Tag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// Refuse answers as S3 does: with XML, except to HEAD.
func Refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	RefuseSaying(w, r, status, code, code)
}

// RefuseSaying is Refuse with a message.
func RefuseSaying(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`,
			code, message)
	}
}
