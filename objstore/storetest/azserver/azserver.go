// Package azserver implements in memory the part of Azure Blob Storage that the store uses, as
// these pages below https://learn.microsoft.com/rest/api/storageservices document it:
//
//	conditions    specifying-conditional-headers-for-blob-service-operations
//	uploads       put-blob, put-block, put-block-list
//	reads         get-blob, get-blob-properties, specifying-the-range-header-for-blob-service-operations
//	lists         list-blobs
//	signatures    authorize-with-shared-key, create-service-sas
//	errors        common-rest-api-error-codes, blob-service-error-codes
//
// The order of names in accounts with a hierarchical namespace is the one of
// https://github.com/Azure/azure-sdk-for-go/issues/24210.
package azserver

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/shardtool/shardtool/objstore/storetest/fake"
)

// Server is such a server, with the container "box" of the account Account.
type Server struct {
	*fake.Server

	Objects map[string]*Stored
	Blocks  map[string]map[string][]byte // uncommitted, by name and ID
	Token   string                       // that is accepted
	SAS     url.Values                   // that is accepted, with its permissions and its end
	Private string                       // the code for anonymous requests; "" lets them read
	Folders bool                         // a hierarchical namespace

	Unverified bool // MD5s are neither compared nor kept

	// Versioned keeps in Versions what is replaced and deleted, and Soft what would be gone, as
	// Deleted, the oldest of a name first. Locked returns the code with which a deletion is refused,
	// or ""; the version of an object is its own.
	Versioned, Soft bool
	Versions        map[string][]*Stored
	Locked          func(name, version string) string

	next int
}

// Account is the account of a Server.
const Account = "acct"

// Key is its key.
var Key = []byte("marked account key")

// Stored is a blob.
type Stored struct {
	Data []byte
	ETag string // without quotes
	At   time.Time
	Tag  string
	MD5  string // in base64
	Type string

	Version string
	Deleted bool // softly
}

// Unstarted returns a server that the test starts and that ends with it.
func Unstarted(t testing.TB) *Server {
	s := &Server{Objects: map[string]*Stored{}, Blocks: map[string]map[string][]byte{}, Private: "ResourceNotFound",
		Versions: map[string][]*Stored{}}
	s.Server = fake.Unstarted(t, s.serve)
	return s
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	s := Unstarted(t)
	s.Start()
	return s
}

// Refuse answers with the header and the XML of an error.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("X-Ms-Request-Id", "request-1")
	w.WriteHeader(status)
	fmt.Fprintf(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>", code)
	_ = xml.EscapeText(w, []byte(message+"\nRequestId:request-1\nTime:2026-01-01T00:00:00Z"))
	fmt.Fprint(w, "</Message></Error>")
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := fake.Body(r)
	if err != nil {
		return
	}
	digest := ""
	if !s.Unverified {
		sum := md5.Sum(body)
		digest = base64.StdEncoding.EncodeToString(sum[:])
	}
	s.Mu.Lock()
	release := sync.OnceFunc(s.Mu.Unlock)
	defer release()
	query := r.URL.Query()
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+Account+"/")
	container, name, _ := strings.Cut(rest, "/")
	switch {
	case !ok:
		Refuse(w, http.StatusBadRequest, "InvalidUri",
			"The requested URI does not represent any resource on the server.")
	case !s.admits(w, r, query, name):
	case container != "box":
		Refuse(w, http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
	case r.Method == http.MethodGet && name == "":
		s.list(w, query)
	case r.Method == http.MethodPut:
		s.put(w, r, query, name, body, digest)
	case r.Method == http.MethodDelete && query.Has("versionid"):
		s.removeVersion(w, name, query.Get("versionid"))
	case s.Objects[name] == nil:
		Refuse(w, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	case r.Method == http.MethodDelete:
		if o := s.Objects[name]; !s.locked(w, name, o.Version) {
			s.keep(name, o)
			delete(s.Objects, name)
			w.WriteHeader(http.StatusAccepted)
		}
	default:
		o := s.Objects[name]
		release()
		s.get(w, r, o)
	}
}

// locked refuses to delete a version that is locked.
func (s *Server) locked(w http.ResponseWriter, name, version string) bool {
	code := ""
	if s.Locked != nil {
		code = s.Locked(name, version)
	}
	if code != "" {
		Refuse(w, http.StatusConflict, code, "This operation is not permitted as the blob is immutable due to a policy.")
	}
	return code != ""
}

// keep keeps what is replaced or deleted.
func (s *Server) keep(name string, o *Stored) {
	if o.Deleted = s.Soft && !s.Versioned; s.Versioned || s.Soft {
		s.Versions[name] = append(s.Versions[name], o)
	}
}

func (s *Server) removeVersion(w http.ResponseWriter, name, version string) {
	i := slices.IndexFunc(s.Versions[name], func(o *Stored) bool { return o.Version == version && !o.Deleted })
	switch {
	case i < 0:
		Refuse(w, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
		return
	case s.locked(w, name, version):
		return
	case s.Soft:
		s.Versions[name][i].Deleted = true
	default:
		s.Versions[name] = slices.Delete(s.Versions[name], i, i+1)
	}
	w.WriteHeader(http.StatusAccepted)
}

// admits checks who sends a request, and answers it if it is refused.
func (s *Server) admits(w http.ResponseWriter, r *http.Request, query url.Values, name string) bool {
	authorization := r.Header.Get("Authorization")
	switch {
	case strings.HasPrefix(authorization, "SharedKey "):
		if authorization == "SharedKey "+Account+":"+signature(r) {
			return true
		}
		Refuse(w, http.StatusForbidden, "AuthenticationFailed",
			"Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.")
	case authorization != "":
		if s.Token != "" && authorization == "Bearer "+s.Token {
			return true
		}
		Refuse(w, http.StatusUnauthorized, "InvalidAuthenticationInfo",
			"Lifetime validation failed. The token is expired.")
	case query.Has("sig"):
		end, _ := time.Parse(time.RFC3339, query.Get("se"))
		need := map[string]string{http.MethodGet: "r", http.MethodHead: "r", http.MethodPut: "w",
			http.MethodDelete: "d"}[r.Method]
		if name == "" {
			need = "l"
		}
		switch {
		case query.Get("sig") != s.SAS.Get("sig") || query.Get("sp") != s.SAS.Get("sp") || time.Now().After(end):
			Refuse(w, http.StatusForbidden, "AuthenticationFailed",
				"Server failed to authenticate the request. Signature not valid in the specified time frame")
		case !strings.Contains(query.Get("sp"), need):
			Refuse(w, http.StatusForbidden, "AuthorizationPermissionMismatch",
				"This request is not authorized to perform this operation using this permission.")
		default:
			return true
		}
	case s.Private == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return true
	case s.Private == "PublicAccessNotPermitted":
		Refuse(w, http.StatusConflict, s.Private, "Public access is not permitted on this storage account.")
	case s.Private == "NoAuthenticationInformation":
		Refuse(w, http.StatusUnauthorized, s.Private, "Server failed to authenticate the request.")
	default:
		Refuse(w, http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	}
	return false
}

// signature returns the signature of a request with the key, over what arrived.
func signature(r *http.Request) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n")
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5",
		"Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		value := r.Header.Get(name)
		if name == "Content-Length" && value == "0" {
			value = ""
		}
		b.WriteString(value + "\n")
	}
	var own []string
	for name, values := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, name+":"+strings.Join(values, ",")+"\n")
		}
	}
	slices.SortFunc(own, func(a, b string) int { // by names
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	path, _, _ := strings.Cut(r.RequestURI, "?")
	b.WriteString(strings.Join(own, "") + "/" + Account + path)
	var parameters []string
	for name, values := range r.URL.Query() {
		parameters = append(parameters, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(parameters)
	b.WriteString(strings.Join(parameters, ""))
	mac := hmac.New(sha256.New, Key)
	mac.Write([]byte(b.String()))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// put stores a block, or checks the condition and stores the object. digest is the MD5 of the body.
func (s *Server) put(w http.ResponseWriter, r *http.Request, query url.Values, name string, body []byte,
	digest string) {
	if want := r.Header.Get("Content-MD5"); want != "" && want != digest && !s.Unverified {
		Refuse(w, http.StatusBadRequest, "Md5Mismatch",
			"The MD5 value specified in the request did not match with the MD5 value calculated by the server.")
		return
	}
	if query.Get("comp") == "block" {
		id, err := base64.StdEncoding.DecodeString(query.Get("blockid"))
		if err != nil || len(id) > 64 {
			Refuse(w, http.StatusBadRequest, "InvalidQueryParameterValue",
				"Value for one of the query parameters specified in the request URI is invalid.")
			return
		}
		if s.Blocks[name] == nil {
			s.Blocks[name] = map[string][]byte{}
		}
		s.Blocks[name][query.Get("blockid")] = body
		w.WriteHeader(http.StatusCreated)
		return
	}
	old := s.Objects[name]
	list := query.Get("comp") == "blocklist"
	switch match := r.Header.Get("If-Match"); {
	case r.Header.Get("If-None-Match") == "*" && old != nil && list:
		Refuse(w, http.StatusPreconditionFailed, "ConditionNotMet",
			"The condition specified using HTTP conditional header(s) is not met.")
		return
	case r.Header.Get("If-None-Match") == "*" && old != nil:
		Refuse(w, http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
		return
	case match != "" && (old == nil || match != `"`+old.ETag+`"`):
		Refuse(w, http.StatusPreconditionFailed, "ConditionNotMet",
			"The condition specified using HTTP conditional header(s) is not met.")
		return
	}
	data := body
	if list {
		var ids struct{ Uncommitted []string }
		if err := xml.Unmarshal(body, &ids); err != nil {
			Refuse(w, http.StatusBadRequest, "InvalidXmlDocument", "XML specified is not syntactically valid.")
			return
		}
		var blocks [][]byte
		for _, id := range ids.Uncommitted {
			block, ok := s.Blocks[name][id]
			if !ok {
				Refuse(w, http.StatusBadRequest, "InvalidBlockList", "The specified block list is invalid.")
				return
			}
			blocks = append(blocks, block)
		}
		data, digest = slices.Concat(blocks...), ""
	} else if r.Header.Get("X-Ms-Blob-Type") != "BlockBlob" {
		Refuse(w, http.StatusBadRequest, "MissingRequiredHeader",
			"An HTTP header that's mandatory for this request is not specified.")
		return
	}
	delete(s.Blocks, name) // of all writers
	s.next++
	o := &Stored{Data: data, ETag: fmt.Sprintf("0x8D%013X", s.next), At: time.Now(), MD5: digest, Type: "BlockBlob"}
	for key, values := range r.Header {
		if strings.HasPrefix(key, "X-Ms-Meta-") {
			o.Tag = values[0]
		}
	}
	if old != nil {
		s.keep(name, old)
	}
	if s.Versioned {
		o.Version = fmt.Sprintf("2026-01-01T00:00:00.%07dZ", s.next)
	}
	s.Objects[name] = o
	s.describe(w, o)
	w.WriteHeader(http.StatusCreated)
}

func (s *Server) describe(w http.ResponseWriter, o *Stored) {
	w.Header().Set("ETag", `"`+o.ETag+`"`)
	w.Header().Set("Last-Modified", o.At.UTC().Format(http.TimeFormat))
	w.Header().Set("X-Ms-Blob-Type", o.Type)
	if o.Tag != "" {
		w.Header().Set("X-Ms-Meta-Shardtool_upload", o.Tag)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, o *Stored) {
	if match := r.Header.Get("If-Match"); match != "" && match != `"`+o.ETag+`"` {
		Refuse(w, http.StatusPreconditionFailed, "ConditionNotMet",
			"The condition specified using HTTP conditional header(s) is not met.")
		return
	}
	s.describe(w, o)
	if o.MD5 != "" {
		if r.Header.Get("Range") != "" {
			w.Header().Set("X-Ms-Blob-Content-Md5", o.MD5)
		} else {
			w.Header().Set("Content-MD5", o.MD5)
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Header.Get("Range") != "" && len(o.Data) == 0 {
		Refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange",
			"The range specified is invalid for the current size of the resource.")
		return
	}
	r.Header.Del("If-Match")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.Data))
}

// names returns the names in the order of the service: by UTF-16, or by elements.
func (s *Server) names() (all []string) {
	folders := map[string]bool{}
	for name := range s.Objects {
		all = append(all, name)
		for i, c := range name {
			if s.Folders && c == '/' && !folders[name[:i]] {
				folders[name[:i]] = true
				all = append(all, name[:i])
			}
		}
	}
	slices.SortFunc(all, s.compare)
	return all
}

func (s *Server) compare(a, b string) int {
	if s.Folders {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	}
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

func (s *Server) list(w http.ResponseWriter, query url.Values) {
	const page = 3
	type properties struct {
		Modified     string `xml:"Last-Modified"`
		Etag         string
		Size         int    `xml:"Content-Length"`
		ResourceType string `xml:",omitempty"`
		Remaining    int    `xml:"RemainingRetentionDays,omitempty"`
	}
	type blob struct {
		Name       string
		VersionID  string `xml:"VersionId,omitempty"`
		Current    bool   `xml:"IsCurrentVersion,omitempty"`
		Deleted    bool   `xml:",omitempty"`
		Properties properties
	}
	var out struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      struct{ Blob []blob }
		NextMarker string
	}
	if strings.Contains(query.Get("include"), "versions") {
		names := map[string]bool{}
		for _, name := range append(s.names(), slices.Collect(maps.Keys(s.Versions))...) {
			names[name] = true
		}
		for _, name := range slices.SortedFunc(maps.Keys(names), s.compare) {
			if !strings.HasPrefix(name, query.Get("prefix")) {
				continue
			}
			add := func(o *Stored, current bool) {
				b := blob{Name: name, VersionID: o.Version, Current: current && o.Version != "", Deleted: o.Deleted}
				b.Properties = properties{Modified: o.At.UTC().Format(http.TimeFormat), Etag: o.ETag, Size: len(o.Data)}
				if o.Deleted {
					b.Properties.Remaining = 6
				}
				out.Blobs.Blob = append(out.Blobs.Blob, b)
			}
			for _, o := range s.Versions[name] {
				add(o, false)
			}
			if o := s.Objects[name]; o != nil {
				add(o, true)
			}
		}
		from := 0
		_, _ = fmt.Sscan(query.Get("marker"), &from)
		all := out.Blobs.Blob
		if out.Blobs.Blob = all[from:min(len(all), from+page)]; from+page < len(all) {
			out.NextMarker = fmt.Sprint(from + page)
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, xml.Header)
		_ = xml.NewEncoder(w).Encode(out)
		return
	}
	for _, name := range s.names() {
		if s.compare(name, query.Get("marker")) < 0 || !strings.HasPrefix(name, query.Get("prefix")) {
			continue
		}
		if len(out.Blobs.Blob) == page {
			out.NextMarker = name
			break
		}
		b := blob{Name: name}
		if o := s.Objects[name]; o != nil {
			b.Properties = properties{Modified: o.At.UTC().Format(http.TimeFormat), Etag: o.ETag, Size: len(o.Data)}
			if s.Folders {
				b.Properties.ResourceType = "file"
			}
		} else {
			b.Properties = properties{Etag: "0x0", ResourceType: "directory"}
		}
		out.Blobs.Blob = append(out.Blobs.Blob, b)
	}
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(out)
}
