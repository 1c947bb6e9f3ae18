package stores_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// secured puts TLS in front of a server, with a certificate from a private CA, and returns the CA's
// file.
func (s *server) secured(t *testing.T) (https *server, authority string) {
	t.Helper()
	to, err := url.Parse(s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	h := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
		},
	})
	h.EnableHTTP2 = true                           // as most endpoints do
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	h.StartTLS()
	t.Cleanup(func() {
		h.Close()
		transport.CloseIdleConnections()
	})
	authority = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.at(h.URL), authority
}

// TestTLS runs the suite over HTTPS, where the SDK signs uploads in another way, with a CA that
// only AWS_CA_BUNDLE names.
func TestTLS(t *testing.T) {
	s, _ := versity(t)
	https, authority := s.secured(t)
	t.Setenv("AWS_CA_BUNDLE", authority)
	storetest.Run(t, func(t *testing.T) objstore.Store { return https.open(t, s.bucket(t), "p", s3store.Options{}) })
}

// refusing answers requests without TLS as servers with TLS do: with a text, or with a page. Unlike
// those it reads the entire request first, so that no reset overtakes the answer.
func refusing(t *testing.T, contentType, text string) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// TestWrongTLS checks the immediate errors for an untrusted certificate and for a connection on
// which only one side uses TLS.
func TestWrongTLS(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	https, _ := s.secured(t)
	maybe := []string{"answers 400", "if it speaks TLS, https:// is meant"}
	for name, test := range map[string]struct {
		endpoint string
		phrases  []string
	}{
		"unknown authority":  {https.endpoint, []string{"unknown authority", "AWS_CA_BUNDLE for S3"}},
		"server without TLS": {strings.Replace(s.endpoint, "http:", "https:", 1), []string{"the server speaks no TLS", "http:// may be meant"}},
		"client without TLS": {refusing(t, "", "Client sent an HTTP request to an HTTPS server.\n"), maybe},
		"the same to a server with pages": {
			refusing(t, "text/html", "<html><body>The plain HTTP request was sent to HTTPS port<hr></body></html>"), maybe,
		},
	} {
		for operation, run := range operations {
			t.Run(name+"/"+operation, func(t *testing.T) {
				wantText(t, s, run(t.Context(), s.at(test.endpoint).open(t, bucket, "", s3store.Options{})), test.phrases...)
			})
		}
	}
}
