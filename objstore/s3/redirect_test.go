package s3_test

import (
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// newTLSServer returns a server that offers HTTP/2, and has the default client of a store trust it.
func newTLSServer(t *testing.T) *s3server.Server {
	s := s3server.Unstarted(t)
	s.EnableHTTP2 = true
	s.StartTLS()
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", authority)
	return s
}

// openPlain opens a store with the default client.
func openPlain(t *testing.T, endpoint string, opts s3.Options) objstore.Store {
	t.Helper()
	opts.Endpoint = endpoint
	store, err := s3.New(t.Context(), "bucket", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestRedirectToAnotherHost checks that the host to which a server redirects learns neither the
// signature in the address before, nor the session token.
func TestRedirectToAnotherHost(t *testing.T) {
	there, here := s3server.New(t), s3server.New(t)
	there.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		for _, name := range []string{"Referer", "Authorization", "X-Amz-Security-Token"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s %q was sent to the other host", name, value)
			}
		}
		return false
	})
	here.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		location := here.URL + r.URL.Path + "?X-Amz-Signature=marked-secret"
		if r.URL.Query().Has("X-Amz-Signature") {
			// Another name of the same address, for which no system needs a resolver.
			location = strings.Replace(there.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1) + r.URL.Path
		}
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	store := openPlain(t, here.URL, quick(here.URL))
	there.Objects["a"] = s3server.Stored{Data: []byte("content"), ETag: s3server.Tag([]byte("content"))}
	if data, _, err := objstore.ReadAll(t.Context(), store, "a", 100); err != nil || string(data) != "content" {
		t.Fatalf("%q, %v", data, err)
	}
}

// TestRedirectWithoutTLS refuses to leave https for http.
func TestRedirectWithoutTLS(t *testing.T) {
	there := s3server.New(t)
	here := newTLSServer(t)
	here.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
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
	if n := len(there.Requests("")); n > 0 {
		t.Errorf("%d requests to the server without TLS", n)
	}
}
