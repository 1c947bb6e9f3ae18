package hub_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/hub"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
)

// cut answers a range with its header and n bytes, and then closes or holds the connection.
func cut(w http.ResponseWriter, r *http.Request, data []byte, n int, hold bool) {
	var first, last int
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	last = min(last, len(data)-1)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
	w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
	w.Header().Set("ETag", `"`+hubserver.GitHash(data)+`"`)
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(data[first : first+min(n, last-first+1)])
	_ = http.NewResponseController(w).Flush()
	if hold {
		<-r.Context().Done()
	} else {
		reset(w)
	}
}

func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// TestBadNetwork has each fault on each kind of request, two times in a row before each answer: a
// read returns the right bytes, with a bounded number of requests.
func TestBadNetwork(t *testing.T) {
	data := pattern(1, 30_000)
	for fault, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"reset":     func(w http.ResponseWriter, _ *http.Request) { reset(w) },
		"stall":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"truncated": func(w http.ResponseWriter, r *http.Request) { cut(w, r, data, 1000, false) },
		"stops":     func(w http.ResponseWriter, r *http.Request) { cut(w, r, data, 1000, true) },
		"503": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"429": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		for _, at := range []string{"/revision/", "/tree/", "/resolve/", "/xet-bridge-us/", "/resolve-cache/"} {
			if (fault == "truncated" || fault == "stops") && at != "/xet-bridge-us/" && at != "/resolve-cache/" {
				continue // these answers have no bytes of the file
			}
			t.Run(fault+at, func(t *testing.T) {
				t.Helper()
				kind := hubserver.Xet
				if at == "/resolve-cache/" {
					kind = hubserver.Git
				}
				s := one(t, kind, data)
				var mu sync.Mutex
				faults, requests := 0, 0
				s.Hook = func(w http.ResponseWriter, r *http.Request, _ bool) bool {
					mu.Lock()
					requests++
					bad := strings.Contains(r.URL.Path, at) && r.Method == http.MethodGet && faults < 2
					if bad {
						faults++
					}
					mu.Unlock()
					if bad {
						answer(w, r)
					}
					return bad
				}
				opts := quick()
				opts.FirstByteTimeout, opts.StallTimeout = 300*time.Millisecond, 300*time.Millisecond
				store := openAt(t, "datasets/o/n", opts)
				for info, err := range store.List(t.Context(), "") {
					if err != nil || info.Size != int64(len(data)) {
						t.Fatal(info, err)
					}
				}
				if p, err := read(t, store, "a", 500, 20_000); err != nil || !bytes.Equal(p, data[500:20_500]) {
					t.Fatal(err)
				}
				// There may be more on a machine that pauses for a while.
				if faults != 2 || requests > 30 {
					t.Errorf("%d faults, %d requests", faults, requests)
				}
			})
		}
	}
}

// TestOutage has hosts that refuse everything: a read gives up after the permitted attempts.
func TestOutage(t *testing.T) {
	for _, down := range []bool{true, false} {
		s := one(t, hubserver.LFS, pattern(1, 1000))
		s.Hook = func(w http.ResponseWriter, _ *http.Request, here bool) bool {
			if here == down {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return here == down
		}
		opts := quick()
		opts.MaxAttempts = 7
		_, err := read(t, openAt(t, "datasets/o/n", opts), "a", 0, 10)
		if err == nil || !strings.Contains(err.Error(), "given up after 7 attempts") || !strings.Contains(err.Error(), "503") || strings.Contains(err.Error(), "marked") {
			t.Error(err)
		}
		if c := s.Counts(); c.Resolve > 1 || c.Bytes > 7 {
			t.Errorf("%+v", c)
		}
	}
}

// TestWrongAnswers checks that each is an error that names the fault, and that none of its bytes is
// delivered.
func TestWrongAnswers(t *testing.T) {
	data := pattern(1, 10_000)
	for name, c := range map[string]struct {
		header map[string]string
		status int
		body   []byte
		want   string
	}{
		"whole":       {nil, 200, data, "ignores Range"},
		"page":        {map[string]string{"Content-Type": "text/html"}, 200, []byte("<html>login</html>"), "HTML page"},
		"other range": {map[string]string{"Content-Range": "bytes 0-99/10000"}, 206, data[:100], "another range"},
		"longer":      {map[string]string{"Content-Range": "bytes 100-300/10000"}, 206, data[100:301], "another range"},
		"nonsense":    {map[string]string{"Content-Range": "bytes x-y/z"}, 206, data[:100], "Content-Range"},
		"other size":  {map[string]string{"Content-Range": "bytes 100-199/10001"}, 206, data[100:200], "the Hub gives it a size of 10000 bytes, and the answer one of 10001"},
		"compressed":  {map[string]string{"Content-Range": "bytes 100-199/10000", "Content-Encoding": "gzip"}, 206, data[:100], "compresses"},
		"teapot":      {nil, 418, nil, "418"},
		"redirect":    {map[string]string{"Location": "http://127.0.0.1:1/x"}, 302, nil, "connection refused"},
		"no redirect": {nil, 302, nil, "302: at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(t, hubserver.LFS, data)
			s.Hook = func(w http.ResponseWriter, _ *http.Request, here bool) bool {
				if here {
					return false
				}
				for key, value := range c.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write(c.body)
				return true
			}
			opts := quick()
			opts.MaxAttempts = 2
			p, err := read(t, openAt(t, "datasets/o/n", opts), "a", 100, 100)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "marked") || !bytes.Equal(p, make([]byte, 100)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for at, want := range map[string]string{"/revision/": "HF_ENDPOINT", "/tree/": "HF_ENDPOINT", "/resolve/": "HTML page"} {
		s := one(t, hubserver.LFS, data)
		s.Hook = func(w http.ResponseWriter, r *http.Request, _ bool) bool {
			if bad := strings.Contains(r.URL.Path, at); !bad {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			if at == "/resolve/" {
				w.Header().Set("Content-Type", "text/html")
			}
			fmt.Fprint(w, `"<html>"`)
			return true
		}
		store := openAt(t, "datasets/o/n", quick())
		_, err := read(t, store, "a", 0, 10)
		for _, listed := range store.List(t.Context(), "") {
			if err == nil {
				err = listed
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestReplaced has a Hub whose commit changes, which no Hub does: a handle returns the bytes of one
// version or ErrChanged.
func TestReplaced(t *testing.T) {
	for kind := range hubserver.Xet + 1 {
		old, changed := pattern(1, 10_000), pattern(2, 10_000)
		s := one(t, kind, old)
		object, err := openAt(t, "datasets/o/n", quick()).Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer object.Close()
		p := make([]byte, 100)
		if err := object.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, old[:100]) {
			t.Fatal(err)
		}
		s.Sets["o/n"].Files[hubserver.Commit]["a"] = hubserver.File{Data: changed, Kind: kind}
		s.Revoke()
		clear(p)
		if err := object.ReadAt(t.Context(), p, 0); !errors.Is(err, objstore.ErrChanged) || !bytes.Equal(p, make([]byte, 100)) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

// TestToken checks that the token goes to the endpoint and to no other place: another host, another
// port, or the same host without TLS, which is not followed at all.
func TestToken(t *testing.T) {
	data := pattern(1, 1000)
	s := one(t, hubserver.Xet, data) // fails if the other host learns it
	t.Setenv("HF_TOKEN", "hf_marked")
	if p, err := read(t, openAt(t, "datasets/o/n", quick()), "a", 0, 1000); err != nil || !bytes.Equal(p, data) {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []string
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Authorization"))
		mu.Unlock()
		u, _ := url.Parse(s.URL)
		u.Path, u.RawQuery = r.URL.Path, "sig=marked"
		w.Header().Set("Location", u.String())
		w.WriteHeader(http.StatusPermanentRedirect)
	}))
	defer secure.Close()
	s.Hook = func(http.ResponseWriter, *http.Request, bool) bool {
		t.Error("a redirect from https to http was followed")
		return false
	}
	t.Setenv("HF_ENDPOINT", secure.URL)
	opts := quick()
	opts.HTTPClient = secure.Client()
	store, err := hub.New("datasets/o/n", opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, store, "a", 0, 10); err == nil || !strings.Contains(err.Error(), "redirects from https to http://") || strings.Contains(err.Error(), "marked") {
		t.Error(err)
	}
	if len(asked) != 1 || asked[0] != "Bearer hf_marked" {
		t.Errorf("%q", asked)
	}
	// A mirror that redirects to the Hub: without the token, and each request follows.
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+r.URL.RequestURI(), http.StatusPermanentRedirect)
	}))
	defer mirror.Close()
	s.Hook = func(_ http.ResponseWriter, r *http.Request, _ bool) bool {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the other host learns the token")
		}
		return false
	}
	t.Setenv("HF_ENDPOINT", mirror.URL)
	if p, err := read(t, openAt(t, "datasets/o/n", quick()), "a", 0, 1000); err != nil || !bytes.Equal(p, data) {
		t.Error(err)
	}
}
