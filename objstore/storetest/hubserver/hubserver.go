// Package hubserver imitates the Hugging Face Hub for tests: the API for the commit of a revision
// and for trees, /resolve/ with its redirects, and the host with the bytes of files in LFS and Xet.
// What it answers is documented, or was shown by its developers, here:
//
//   - rate limits: https://huggingface.co/docs/hub/rate-limits
//   - X-Linked-Etag, X-Linked-Size, X-Repo-Commit, X-Xet-Hash: huggingface_hub, file_download.py
//     (get_hf_file_metadata) and constants.py; hashes as ETags: the same, hf_hub_download
//   - X-Error-Code and X-Error-Message: huggingface_hub, utils/_http.py (hf_raise_for_status)
//   - trees, in pages by Link: huggingface_hub, hf_api.py (list_repo_tree, RepoFile)
//   - 307 to /api/resolve-cache/ for files in git, direct answers for private data sets and empty
//     files, 302 to signed URLs for LFS and Xet: https://github.com/huggingface/huggingface_hub/issues/4815
package hubserver

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/storetest/fake"
)

// Commit is the commit of every data set's main branch. Other is one whose files the tests set.
var (
	Commit = strings.Repeat("0123456789abcdef", 3)[:40]
	Other  = strings.Repeat("fedcba9876543210", 3)[:40]
)

// Kind is how the Hub stores a file.
type Kind int

// The kinds of files.
const (
	Git Kind = iota
	LFS
	Xet
)

// File is a file of a data set.
type File struct {
	Data []byte
	Kind Kind
}

// Set is a data set.
type Set struct {
	Files          map[string]map[string]File // by commit, then by path
	Revisions      map[string]string          // the commits of branches and tags
	Private, Gated bool
	Token          string // what reads it if it is private or gated
}

// NewSet returns a public data set whose main branch has the files.
func NewSet(files map[string]File) *Set {
	return &Set{Files: map[string]map[string]File{Commit: files}, Revisions: map[string]string{"main": Commit}}
}

// Counts are the numbers of requests.
type Counts struct {
	API, Resolve, Bytes int // to the API, to /resolve/ and /api/resolve-cache/, to the host with the bytes
	Refused             int // answered by 429
	Expired             int // to the host with the bytes, with an expired signature
}

// Server is a Hub at URL. Set the fields before the first request, or in Hook.
type Server struct {
	URL, BytesURL string
	Sets          map[string]*Set // by ORG/NAME
	// Limit and Window are the rate limit of each kind of requests, by default 3,000 in 5 minutes.
	Limit  int
	Window time.Duration
	// Lifetime is how long a signature is valid, by default an hour.
	Lifetime time.Duration
	// Sign returns the query of a signed URL that ends at a time; see [CloudFront] and [S3].
	Sign func(end time.Time) url.Values
	// PageSize is the number of entries in a page of a tree, by default 1,000.
	PageSize int
	// Hook sees each request first and may answer it by returning true. here is false for requests
	// to the host with the bytes.
	Hook func(w http.ResponseWriter, r *http.Request, here bool) bool
	// Ahead is how much the clock of both hosts is ahead of this machine's.
	Ahead time.Duration

	there string // the URL of the host with the bytes

	mu      sync.Mutex
	counts  Counts
	windows map[string]*window
	valid   map[string]time.Time // the ends of signatures
	leaks   []string
}

// Add adds a data set, also after the first request.
func (s *Server) Add(name string, set *Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Sets[name] = set
}

type window struct {
	end  time.Time
	used int
}

// New starts a server, which the test ends. HF_ENDPOINT and HF_HOME name it and an empty folder,
// and the variables with a token are empty.
func New(t testing.TB, sets map[string]*Set) *Server {
	t.Helper()
	s := &Server{Sets: sets, Limit: 3000, Window: 5 * time.Minute, Lifetime: time.Hour, Sign: CloudFront,
		PageSize: 1000,
		windows:  map[string]*window{}, valid: map[string]time.Time{}}
	here := httptest.NewServer(http.HandlerFunc(s.serve))
	there := httptest.NewServer(http.HandlerFunc(s.serveBytes))
	t.Cleanup(func() {
		here.Close()
		there.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, leak := range s.leaks {
			t.Errorf("the host with the bytes was sent %s", leak)
		}
	})
	s.URL, s.BytesURL, s.there = here.URL, there.URL, there.URL
	if tt, ok := t.(*testing.T); ok {
		for name, value := range s.env(t.TempDir()) {
			tt.Setenv(name, value)
		}
	}
	return s
}

func (s *Server) env(home string) map[string]string {
	return map[string]string{"HF_ENDPOINT": s.URL, "HF_HOME": home, "HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "",
		"HF_TOKEN_PATH": ""}
}

// CloudFront signs with Expires, Policy and Signature.
func CloudFront(end time.Time) url.Values {
	return url.Values{"X-Xet-Cas-Uid": {"public"}, "Expires": {fmt.Sprint(end.Unix())}, "Policy": {"marked-policy"},
		"Key-Pair-Id": {"K1"}}
}

// S3 signs with X-Amz-Date and X-Amz-Expires.
func S3(end time.Time) url.Values {
	return url.Values{"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"},
		"X-Amz-Date": {end.Add(-time.Hour).UTC().Format("20060102T150405Z")}, "X-Amz-Expires": {"3600"}}
}

// Azure signs with se.
func Azure(end time.Time) url.Values {
	return url.Values{"se": {end.UTC().Format(time.RFC3339)}, "sp": {"r"}}
}

// Counts returns the numbers of requests so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Revoke makes all signatures invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.valid)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(s.Ahead).UTC().Format(http.TimeFormat))
	if hook := s.hook(); hook == nil || !hook(w, r, true) {
		s.answer(w, r)
	}
}

// answer answers a request to the Hub without the hook.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	class := "api"
	if strings.Contains(r.URL.Path, "/resolve") {
		class = "resolvers"
	}
	if !s.admit(w, class) {
		return
	}
	if parts[0] == "api" {
		parts = parts[1:]
	}
	if parts[0] == "whoami-v2" {
		if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); !strings.HasPrefix(token, "hf_") ||
			strings.Contains(token, "expired") {
			refuse(w, 401, "", "Invalid username or password.")
			return
		}
		_, _ = io.WriteString(w,
			`{"type":"user","name":"someone","auth":{"type":"access_token","accessToken":{"role":"read"}}}`)
		return
	}
	cached := parts[0] == "resolve-cache"
	if cached {
		parts = slices.Insert(parts[1:], 3, "resolve-cache")
	}
	if len(parts) < 5 || parts[0] != "datasets" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	set := s.Sets[parts[1]+"/"+parts[2]]
	s.mu.Unlock()
	if !authorized(w, r, set, parts[3]) {
		return
	}
	revision, _ := url.PathUnescape(parts[4])
	commit := revision
	if named := set.Revisions[revision]; named != "" {
		commit = named
	}
	files, ok := set.Files[commit]
	if !ok {
		refuse(w, 404, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	path, _ := url.PathUnescape(strings.Join(parts[5:], "/"))
	w.Header().Set("X-Repo-Commit", commit)
	switch parts[3] {
	case "revision":
		fmt.Fprintf(w, `{"_id":"1","id":%q,"sha":%q}`, parts[1]+"/"+parts[2], commit)
	case "tree":
		s.tree(w, r, files, path)
	default:
		file, ok := files[path]
		if !ok {
			refuse(w, 404, "EntryNotFound", "Entry not found")
			return
		}
		s.resolve(w, r, set, file, cached, commit, path)
	}
}

// admit counts a request and refuses it if it is above the limit.
func (s *Server) admit(w http.ResponseWriter, class string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if class == "api" {
		s.counts.API++
	} else {
		s.counts.Resolve++
	}
	now := time.Now()
	win := s.windows[class]
	if win == nil || now.After(win.end) {
		win = &window{end: now.Add(s.Window)}
		s.windows[class] = win
	}
	win.used++
	w.Header().Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", class, max(0, s.Limit-win.used),
		int(win.end.Sub(now)/time.Second)))
	w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"fixed window";%q;q=%d;w=%d`, class, s.Limit,
		int(s.Window/time.Second)))
	if win.used > s.Limit {
		s.counts.Refused++
		w.WriteHeader(http.StatusTooManyRequests)
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.Header().Set("X-Request-Id", "Root=1-6")
	w.WriteHeader(status)
}

func authorized(w http.ResponseWriter, r *http.Request, set *Set, what string) bool {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case token != "" && !strings.HasPrefix(token, "hf_"):
		refuse(w, 401, "", "Invalid credentials in Authorization header")
	case set == nil && token == "" || set != nil && set.Private && token == "":
		refuse(w, 401, "RepoNotFound", "Invalid username or password.")
	case set == nil || set.Private && token != set.Token:
		refuse(w, 404, "RepoNotFound", "Repository not found")
	case set.Gated && token == "" && strings.HasPrefix(what, "resolve"):
		refuse(w, 401, "GatedRepo",
			"Access to this dataset is restricted. You must have access to it and be authenticated to access it.")
	case set.Gated && token != set.Token && strings.HasPrefix(what, "resolve"):
		refuse(w, 403, "GatedRepo", "Access to this dataset is restricted and you are not in the authorized list.")
	default:
		return true
	}
	return false
}

func (s *Server) tree(w http.ResponseWriter, r *http.Request, files map[string]File, folder string) {
	type lfs struct {
		OID         string `json:"oid"`
		Size        int    `json:"size"`
		PointerSize int    `json:"pointerSize"`
	}
	type entry struct {
		Type    string `json:"type"`
		OID     string `json:"oid"`
		Size    int    `json:"size"`
		LFS     *lfs   `json:"lfs,omitempty"`
		XetHash string `json:"xetHash,omitempty"`
		Path    string `json:"path"`
	}
	entries := []entry{}
	folders := map[string]bool{}
	for path, file := range files {
		if folder != "" && !strings.HasPrefix(path, folder+"/") {
			continue
		}
		e := entry{Type: "file", OID: GitHash(file.Data), Size: len(file.Data), Path: path}
		if file.Kind != Git {
			e.LFS = &lfs{SHA256(file.Data), len(file.Data), 134}
			e.OID = GitHash([]byte(e.LFS.OID)) // of the pointer
		}
		if file.Kind == Xet {
			e.XetHash = SHA256([]byte(e.LFS.OID))
		}
		entries = append(entries, e)
		for end := range len(path) {
			if dir := path[:end]; path[end] == '/' && len(dir) > len(folder) && !folders[dir] {
				folders[dir] = true
				entries = append(entries, entry{Type: "directory", OID: GitHash([]byte(dir)), Path: dir})
			}
		}
	}
	if len(entries) == 0 && folder != "" {
		refuse(w, 404, "EntryNotFound", folder+" does not exist on this revision")
		return
	}
	// Folders first, and files not in the order of bytes.
	slices.SortFunc(entries, func(a, b entry) int {
		if by := strings.Compare(a.Type, b.Type); by != 0 {
			return by
		}
		return strings.Compare(strings.ReplaceAll(b.Path, "/", "\x00"), strings.ReplaceAll(a.Path, "/", "\x00"))
	})
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := min(len(entries), from+s.PageSize)
	if to < len(entries) {
		w.Header().Set("Link", fmt.Sprintf(`<https://huggingface.co%s?recursive=true&limit=%d&cursor=%d>; rel="next"`,
			r.URL.EscapedPath(), s.PageSize, to))
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(entries[from:to])
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request, set *Set, file File, cached bool, commit,
	path string) {
	if file.Kind != Git {
		s.mu.Lock()
		end := time.Now().Add(s.Ahead).Add(s.Lifetime)
		signature := fmt.Sprintf("marked-signature-%d", len(s.valid)+1)
		s.valid[signature] = end
		s.mu.Unlock()
		query := s.Sign(end)
		query.Set("Signature", signature)
		query.Set("response-content-disposition", "inline; filename*=UTF-8''x; filename=\"x\";")
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(file.Data)))
		w.Header().Set("X-Linked-Etag", `"`+SHA256(file.Data)+`"`)
		if file.Kind == Xet {
			w.Header().Set("X-Xet-Hash", SHA256([]byte(SHA256(file.Data))))
			w.Header().Set("Link", `<https://huggingface.co/api/datasets/o/n/xet-read-token/x>; rel="xet-auth"`)
		}
		w.Header().Set("Location", s.BytesURL+"/xet-bridge-us/"+SHA256(file.Data)+"?"+query.Encode())
		w.WriteHeader(http.StatusFound)
		return
	}
	if !cached && !set.Private && len(file.Data) > 0 {
		parts := strings.Split(r.URL.EscapedPath(), "/") // "", datasets, ORG, NAME, resolve, REVISION, …
		to := "/api/resolve-cache/" + strings.Join(slices.Concat(parts[1:4], []string{commit}, parts[6:]), "/")
		w.Header().Set("Location", to+"?etag=%22"+GitHash(file.Data)+"%22")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("ETag", `"`+GitHash(file.Data)+`"`)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.Data))
}

// hook returns Hook.
func (s *Server) hook() func(w http.ResponseWriter, r *http.Request, here bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Hook
}

// SetHook replaces the hook of both hosts, also while requests are answered.
func (s *Server) SetHook(hook fake.Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Hook = nil
	if hook != nil {
		s.Hook = func(w http.ResponseWriter, r *http.Request, _ bool) bool { return hook(w, r) }
	}
}

// Answer answers a request to either host without the hook.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request) {
	if "http://"+r.Host != s.there {
		s.answer(w, r)
		return
	}
	s.mu.Lock()
	ok := s.signed(r)
	s.mu.Unlock()
	s.answerBytes(w, r, ok)
}

// signed reports whether a request has a valid signature. The caller holds the lock.
func (s *Server) signed(r *http.Request) bool {
	end, ok := s.valid[r.URL.Query().Get("Signature")]
	return ok && time.Now().Add(s.Ahead).Before(end)
}

// serveBytes is the other host. Its URLs are signed for GET only, and its ETags are its own.
func (s *Server) serveBytes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.counts.Bytes++
	for _, name := range []string{"Authorization", "Referer", "Cookie"} {
		if value := r.Header.Get(name); value != "" {
			s.leaks = append(s.leaks, name+" "+value)
		}
	}
	ok := s.signed(r)
	if !ok {
		s.counts.Expired++
	}
	s.mu.Unlock()
	if hook := s.hook(); hook == nil || !hook(w, r, false) {
		s.answerBytes(w, r, ok)
	}
}

// answerBytes answers a request to the other host without the hook.
func (s *Server) answerBytes(w http.ResponseWriter, r *http.Request, ok bool) {
	if !ok || r.Method != http.MethodGet {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>")
		return
	}
	data := s.stored(strings.TrimPrefix(r.URL.Path, "/xet-bridge-us/"))
	w.Header().Set("ETag", `"other-`+SHA256(data)[:16]+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
}

// hashes has the hashes of large files, which take long.
var hashes sync.Map

type hashKey struct {
	first *byte
	size  int
	git   bool
}

func remember(data []byte, git bool, compute func() string) string {
	if len(data) < 1<<12 {
		return compute()
	}
	key := hashKey{&data[0], len(data), git}
	known, _ := hashes.LoadOrStore(key, sync.OnceValue(compute))
	return known.(func() string)()
}

// SHA256 returns the hash of data in hex.
func SHA256(data []byte) string {
	return remember(data, false, func() string { return fmt.Sprintf("%x", sha256.Sum256(data)) })
}

// GitHash returns the hash of a blob in hex.
func GitHash(data []byte) string {
	return remember(data, true, func() string {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", len(data))
		h.Write(data)
		return fmt.Sprintf("%x", h.Sum(nil))
	})
}

func (s *Server) stored(sum string) []byte {
	for _, set := range s.Sets {
		for _, files := range set.Files {
			for _, file := range files {
				if file.Kind != Git && SHA256(file.Data) == sum {
					return file.Data
				}
			}
		}
	}
	return nil
}
