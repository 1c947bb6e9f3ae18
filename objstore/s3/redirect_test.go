package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
)

// openPlain opens a store with the default client.
func openPlain(t *testing.T, endpoint string, opts s3.Options) *s3.Store {
	t.Helper()
	opts.Endpoint = endpoint
	store, err := s3.New(t.Context(), "bucket", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestRedirects checks that a loop and a long chain end at once, and that the error names the last
// address.
func TestRedirects(t *testing.T) {
	for name, c := range map[string]struct {
		next func(step int) int
		most int
		want string
	}{
		"loop":  {func(step int) int { return 1 - step }, 2, "redirects in a loop, back to "},
		"chain": {func(step int) int { return step + 1 }, 11, "redirects more than 10 times"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				step := 0
				_, _ = fmt.Sscanf(r.URL.Query().Get("step"), "%d", &step)
				w.Header().Set("Location", fmt.Sprintf("%s%s?step=%d", s.URL, r.URL.Path, c.next(step)))
				w.WriteHeader(http.StatusTemporaryRedirect)
				return true
			})
			store := openPlain(t, s.URL, quick(s.URL))
			object, err := store.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer object.Close()
			for op, do := range map[string]func() error{
				"GET":    func() error { return object.ReadAt(t.Context(), make([]byte, 10), 0) },
				"DELETE": func() error { return store.Delete(t.Context(), "a") },
			} {
				err := do()
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "step=") {
					t.Errorf("%s: %v", op, err)
				}
				// The first URL has no step, so a loop is visible only after one request more.
				if n := len(s.requests(op)); n > c.most+1 {
					t.Errorf("%s: %d requests", op, n)
				}
			}
		})
	}
}

// TestRedirectFollowed follows a 307, with which S3 redirects requests for a new bucket for a
// while.
func TestRedirectFollowed(t *testing.T) {
	s := newServer(t)
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("there") {
			return false
		}
		w.Header().Set("Location", s.URL+r.URL.Path+"?there=1")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	store := openPlain(t, s.URL, quick(s.URL))
	s.objects["a"] = stored{data: []byte("content"), etag: tagOf([]byte("content"))}
	data, _, err := objstore.ReadAll(t.Context(), store, "a", 100)
	if err != nil || !bytes.Equal(data, []byte("content")) {
		t.Fatalf("%q, %v", data, err)
	}
}

// TestRedirectToAnotherHost checks that the host to which a server redirects learns neither the
// signature in the address before, nor the session token.
func TestRedirectToAnotherHost(t *testing.T) {
	there, here := newServer(t), newServer(t)
	there.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		for _, name := range []string{"Referer", "Authorization", "X-Amz-Security-Token"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s %q was sent to the other host", name, value)
			}
		}
		return false
	})
	here.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		location := here.URL + r.URL.Path + "?X-Amz-Signature=marked-secret"
		if r.URL.Query().Has("X-Amz-Signature") {
			location = strings.Replace(there.URL, "127.0.0.1", "localhost", 1) + r.URL.Path
		}
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	store := openPlain(t, here.URL, quick(here.URL))
	there.objects["a"] = stored{data: []byte("content"), etag: tagOf([]byte("content"))}
	if data, _, err := objstore.ReadAll(t.Context(), store, "a", 100); err != nil || string(data) != "content" {
		t.Fatalf("%q, %v", data, err)
	}
}

// TestRedirectWithoutTLS refuses to leave https for http.
func TestRedirectWithoutTLS(t *testing.T) {
	there := newServer(t)
	here := newTLSServer(t)
	here.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", there.URL+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	store := openPlain(t, here.URL, quick(here.URL))
	_, _, readErr := objstore.ReadAll(t.Context(), store, "a", 100)
	for op, err := range map[string]error{"read": readErr, "delete": store.Delete(t.Context(), "a")} {
		if err == nil || !strings.Contains(err.Error(), "redirects from https to "+there.URL+"/bucket/a,") || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if n := len(there.seen); n > 0 {
		t.Errorf("%d requests to the server without TLS", n)
	}
}
