package httpstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// clientFiles writes a certificate and its key, as PEM.
func clientFiles(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{"c.pem": {Type: "CERTIFICATE", Bytes: der}, "k.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
}

// TestClientCertificate: a server that asks for a certificate gets that of the environment, also a
// new one; without one, or with one that cannot be read, the error says so.
func TestClientCertificate(t *testing.T) {
	s := unstarted(t, map[string][]byte{"a": pattern(1, 100)})
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	var who atomic.Value
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, VerifyConnection: func(c tls.ConnectionState) error {
		who.Store(c.PeerCertificates[0].Subject.CommonName)
		return nil
	}}
	s.StartTLS()
	read := func() error {
		transport := s.Client().Transport.(*http.Transport).Clone() // it trusts the server
		ranged.Tune(transport, 4)
		return handle(t, openAt(t, s.URL, transport, quick()), "a").ReadAt(t.Context(), make([]byte, 10), 5)
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "asks for a certificate (SHARDTOOL_CLIENT_CERT)") {
		t.Error(err)
	}
	for _, name := range []string{"first", "second"} {
		certificate, key := clientFiles(t, name)
		t.Setenv("SHARDTOOL_CLIENT_CERT", certificate)
		t.Setenv("SHARDTOOL_CLIENT_KEY", key)
		if err := read(); err != nil || who.Load() != name {
			t.Errorf("%v, as %v", err, who.Load())
		}
	}
	t.Setenv("SHARDTOOL_CLIENT_KEY", filepath.Join(t.TempDir(), "gone"))
	if err := read(); err == nil || !strings.Contains(err.Error(), "SHARDTOOL_CLIENT_CERT") {
		t.Error(err)
	}
}
