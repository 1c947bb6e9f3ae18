package httpstore_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestRedirectToAnotherHost checks that the host to which a server redirects does not learn the
// signature in the first address, the password, or the address itself.
func TestRedirectToAnotherHost(t *testing.T) {
	data := pattern(1, 1000)
	there, here := newServer(t, map[string][]byte{"a": data}), newServer(t, nil)
	there.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		for _, name := range []string{"Referer", "Authorization"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s %q was sent to the other host", name, value)
			}
		}
		return false
	}
	here.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		// Another name of the same address, for which no system needs a resolver.
		http.Redirect(w, r, strings.Replace(there.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)+r.URL.Path, http.StatusFound)
		return true
	}
	opts := quick()
	opts.Header = http.Header{"Authorization": {"Bearer marked-secret"}}
	// The fragment takes up what openAt adds.
	store := openAt(t, here.URL+"/data?sig=marked-secret#", &http.Transport{}, opts)
	if err := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 10), 5); err != nil {
		t.Fatal(err)
	}
	if len(there.asked()) == 0 {
		t.Error("the redirect was not followed")
	}
}

// TestRedirectWithoutTLS refuses to leave https for http.
func TestRedirectWithoutTLS(t *testing.T) {
	there, here := newServer(t, map[string][]byte{"a": pattern(1, 1000)}), newTLSServer(t, nil)
	here.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, there.URL+r.URL.Path+"?sig=marked-secret", http.StatusFound)
		return true
	}
	store := openAt(t, here.URL, here.Client().Transport.(*http.Transport).Clone(), quick())
	err := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 10), 5)
	if err == nil || !strings.Contains(err.Error(), "redirects from https to "+there.URL+"/data/a,") || strings.Contains(err.Error(), "attempts") {
		t.Errorf("%v", err)
	}
	if n := len(there.asked()); n > 0 {
		t.Errorf("%d requests to the server without TLS", n)
	}
}
