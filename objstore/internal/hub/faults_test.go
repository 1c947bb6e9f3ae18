package hub_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/hub"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
)

// TestNetwork runs the suite of bad networks on files in git and in Xet.
func TestNetwork(t *testing.T) {
	for name, kind := range map[string]hubserver.Kind{"git": hubserver.Git, "xet": hubserver.Xet} {
		t.Run(name, func(t *testing.T) {
			storetest.RunNetwork(t, storetest.Network{
				Open: func(t *testing.T, objects map[string][]byte, o objstore.ReadOptions) (objstore.Store, storetest.Server) {
					files := map[string]hubserver.File{}
					for name, data := range objects {
						files[name] = hubserver.File{Data: data, Kind: kind}
						if len(data) == 0 {
							files[name] = hubserver.File{}
						}
					}
					s := hubserver.New(t, map[string]*hubserver.Set{"o/n": hubserver.NewSet(files)})
					s.Limit = 1 << 30
					return openAt(t, "datasets/o/n", hub.Options{ReadOptions: o}), s
				},
				// No Hub changes a commit.
				Replace: func(s storetest.Server, name string, data []byte) {
					server := s.(*hubserver.Server)
					server.Sets["o/n"].Files[hubserver.Commit][name] = hubserver.File{Data: data, Kind: kind}
					server.Revoke()
				},
				Part: 256 << 10,
				Expired: storetest.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Error-Message", "Invalid credentials in Authorization header")
					w.WriteHeader(http.StatusUnauthorized)
				}, Want: "is not valid: give another"},
			})
		})
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
		var err error
		for _, listed := range store.List(t.Context(), "") {
			err = listed
		}
		if err == nil {
			_, err = read(t, store, "a", 0, 10)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", at, err)
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
