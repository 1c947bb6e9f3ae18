package ranged_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// TestTuneProtocol checks that a tuned transport speaks HTTP/1.1 to a server that prefers HTTP/2,
// also if it was cloned from one that speaks HTTP/2.
func TestTuneProtocol(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	fresh := func() *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	}
	for name, transport := range map[string]*http.Transport{"new": fresh(), "clone": fresh().Clone()} {
		ranged.Tune(transport, 4)
		client := &http.Client{Transport: transport}
		answer, err := client.Get(s.URL)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		answer.Body.Close()
		if answer.Proto != "HTTP/1.1" {
			t.Errorf("%s: the answer came by %s", name, answer.Proto)
		}
		client.CloseIdleConnections()
	}
}
