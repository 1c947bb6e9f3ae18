package httpstore_test

import (
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// newTLSServer returns a server whose certificate only its own client trusts.
func newTLSServer(t *testing.T, objects map[string][]byte) *server {
	s := unstarted(t, objects)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not
	s.StartTLS()
	return s
}

func TestTLS(t *testing.T) {
	storetest.RunRead(t, func(t *testing.T, objects map[string][]byte) objstore.Store {
		s := newTLSServer(t, objects)
		return openAt(t, s.URL, s.Client().Transport.(*http.Transport).Clone(), quick())
	})
}

// TestWrongTLS checks the immediate errors for an untrusted certificate and for a connection on
// which only one side uses TLS.
func TestWrongTLS(t *testing.T) {
	objects := map[string][]byte{"a": pattern(1, 100)}
	tls, plain, refusing := newTLSServer(t, objects), newServer(t, objects), newServer(t, nil)
	// Servers with TLS answer like this. The answer follows the request, so that no reset overtakes
	// it.
	refusing.hook = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		return true
	}
	for address, phrases := range map[string][]string{
		tls.URL: {"unknown authority", "SSL_CERT_FILE"},
		strings.Replace(plain.URL, "http:", "https:", 1): {"the server speaks no TLS", "http:// may be meant"},
		refusing.URL: {"answers 400", "if it speaks TLS, https:// is meant"},
	} {
		store := openAt(t, address, &http.Transport{}, quick())
		_, statErr := store.Stat(t.Context(), "a")
		readErr := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 10), 5)
		for operation, err := range map[string]error{"stat": statErr, "read": readErr} {
			for _, phrase := range phrases {
				if err == nil || !strings.Contains(err.Error(), phrase) {
					t.Errorf("%s of %s does not say %q: %v", operation, address, phrase, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "attempts") {
				t.Errorf("%s of %s was tried again: %v", operation, address, err)
			}
		}
	}
}
