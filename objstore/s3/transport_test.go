package s3_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// everything uses all operations of a store: an object put by one request and one in parts,
// conditions, ranges, a list, a delete.
func everything(t *testing.T, store objstore.Store) {
	t.Helper()
	for _, size := range []int{0, 1000, 11 << 20} {
		data := make([]byte, size)
		info, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{IfMatch: info.ETag}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if read, _, err := objstore.ReadAll(t.Context(), store, "a", 20<<20); err != nil || len(read) != size {
			t.Fatalf("%d bytes of %d, %v", len(read), size, err)
		}
		for _, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		upload, err := store.Create(t.Context(), "b", objstore.Condition{})
		if err == nil {
			_, err = upload.Write(data)
		}
		if err == nil {
			err = upload.Abort()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSignedHeaders checks that no signature covers Accept-Encoding, which Google's front ends
// rewrite, and that all requests ask for unencoded bytes.
func TestSignedHeaders(t *testing.T) {
	s := s3server.New(t)
	var mu sync.Mutex
	kinds := map[string]bool{}
	s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		kind := r.Method
		for _, name := range []string{"uploads", "uploadId", "list-type"} {
			if r.URL.Query().Has(name) {
				kind += " " + name
			}
		}
		mu.Lock()
		kinds[kind] = true
		mu.Unlock()
		_, signed, ok := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
		signed, _, _ = strings.Cut(signed, ",")
		if names := strings.Split(signed, ";"); !ok || !slices.Contains(names, "host") || slices.Contains(names, "accept-encoding") {
			t.Errorf("%s: signed are %q", kind, signed)
		}
		if got := r.Header.Values("Accept-Encoding"); !slices.Equal(got, []string{"identity"}) {
			t.Errorf("%s: Accept-Encoding %q", kind, got)
		}
		return false
	})
	everything(t, openPlain(t, s.URL, quick(s.URL)))
	for _, kind := range []string{"GET", "HEAD", "PUT", "DELETE", "GET list-type", "POST uploads", "PUT uploadId", "POST uploadId", "DELETE uploadId"} {
		if !kinds[kind] {
			t.Errorf("no request of kind %q was sent", kind)
		}
	}
}

// TestHTTP2Offered uses a server that prefers HTTP/2 over TLS, as most endpoints do.
func TestHTTP2Offered(t *testing.T) {
	s := newTLSServer(t)
	s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Proto != "HTTP/1.1" {
			t.Errorf("%s was sent by %s", r.Method, r.Proto)
		}
		return false
	})
	opts := quick(s.URL)
	opts.ReadOptions.MaxAttempts = 1
	everything(t, openPlain(t, s.URL, opts))
}

// TestEmptyPages checks that an answer without a body is accepted whatever its Content-Type: moto
// labels the answers to puts HTML.
func TestEmptyPages(t *testing.T) {
	for name, chunked := range map[string]bool{"Content-Length": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			s := s3server.New(t)
			inner := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut || r.Method == http.MethodDelete {
					w.Header().Set("Content-Type", "text/html; charset=utf-8")
				}
				inner.ServeHTTP(w, r)
				if chunked {
					_ = http.NewResponseController(w).Flush()
				}
			})
			everything(t, open(t, s.URL, "", quick(s.URL)))
		})
	}
}
