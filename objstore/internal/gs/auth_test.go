package gs_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/gs"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
)

// operations calls every method once and returns the errors.
func operations(t *testing.T, store *gs.Store) map[string]error {
	t.Helper()
	said := map[string]error{}
	_, said["stat"] = store.Stat(t.Context(), "a")
	object, err := store.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	said["get"] = object.ReadAt(t.Context(), make([]byte, 10), 5)
	for _, err := range store.List(t.Context(), "a") {
		said["list"] = err
	}
	said["delete"] = store.Delete(t.Context(), "a")
	_, said["put"] = objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{})
	_, said["put large"] = objstore.Put(t.Context(), store, "a", make([]byte, 2*chunk), objstore.Condition{IfNoneMatch: true})
	return said
}

// identity writes a credentials file and has the environment name it.
func identity(t *testing.T, content map[string]any) {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "credentials.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
}

// account returns the content of a service account's file.
func account(t *testing.T, tokenURL string) map[string]any {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return map[string]any{
		"type": "service_account", "client_email": "packer@project.iam.gserviceaccount.com", "private_key_id": "marked-key-id",
		"private_key": string(text), "token_uri": tokenURL,
	}
}

// secure starts a server with TLS whose tokens are those that it counts up: marked-token-1, and so
// on.
func secure(t *testing.T) (s *gsserver.Server, asked *atomic.Int64) {
	s, asked = gsserver.Unstarted(t), new(atomic.Int64)
	s.StartTLS()
	s.Token = "marked-token-1"
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/token" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "marked-token-%d", "token_type": "Bearer", "expires_in": 3600, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}`, asked.Add(1))
		return true
	})
	return s, asked
}

func named() gs.Options {
	opts := quick()
	opts.Anonymous = false
	return opts
}

// TestIdentities uses each kind of credentials: one token serves all requests.
func TestIdentities(t *testing.T) {
	for name, content := range map[string]func(t *testing.T, tokenURL string) map[string]any{
		"service account": account,
		"user": func(_ *testing.T, tokenURL string) map[string]any {
			return map[string]any{"type": "authorized_user", "client_id": "id", "client_secret": "s", "refresh_token": "r", "token_uri": tokenURL}
		},
		"federation": func(t *testing.T, tokenURL string) map[string]any {
			subject := filepath.Join(t.TempDir(), "subject")
			if err := os.WriteFile(subject, []byte("marked-subject-token"), 0o600); err != nil {
				t.Fatal(err)
			}
			return map[string]any{
				"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
				"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": tokenURL, "credential_source": map[string]any{"file": subject},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := secure(t)
			if name == "user" { // always asks Google: the address of the token server is a constant
				opts := named()
				opts.HTTPClient = &http.Client{Transport: redirect{s.Client().Transport, s.Listener.Addr().String()}}
				identity(t, content(t, s.URL+"/token"))
				works(t, s, open(t, s, "", opts), asked)
				return
			}
			identity(t, content(t, s.URL+"/token"))
			works(t, s, open(t, s, "", named()), asked)
		})
	}
}

// redirect sends all requests to one server.
type redirect struct {
	http.RoundTripper
	host string
}

func (d redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = d.host
	return d.RoundTripper.RoundTrip(r)
}

func works(t *testing.T, s *gsserver.Server, store *gs.Store, asked *atomic.Int64) {
	t.Helper()
	for range 2 {
		for op, err := range operations(t, store) {
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, objstore.ErrExists) && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	if asked.Load() != 1 {
		t.Errorf("%d tokens were asked for", asked.Load())
	}
	for _, r := range s.Requests("") {
		if strings.Contains(r, "marked-token") {
			t.Errorf("a token in an address: %s", r)
		}
	}
}

// childOf has the address of the server of a child of TestCertificate.
const childOf = "SHARDTOOL_TEST_GS_CHILD"

// x509Child puts and reads an object with the credentials of the environment. It trusts the server
// by SSL_CERT_FILE, as the library's client does.
func x509Child(at string) {
	ctx := context.Background()
	store, err := gs.New("bucket", "", gs.Options{Endpoint: at})
	for _, name := range []string{"a", "b"} {
		if err == nil {
			_, err = objstore.Put(ctx, store, name, pattern(1000), objstore.Condition{})
		}
	}
	if err == nil {
		_, _, err = objstore.ReadAll(ctx, store, "b", 1<<20)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestCertificate is federated by an X.509 certificate, which the server of tokens sees in the
// handshake and in the request. When the first token has been refused, that server is away for a
// while. A server that does not know the certificate is an error that says so.
func TestCertificate(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			dir := t.TempDir()
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
			der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			write := func(name string, text []byte) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			config, err := json.Marshal(map[string]any{"cert_configs": map[string]any{"workload": map[string]any{
				"cert_path": write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
				"key_path":  write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
			}}})
			if err != nil {
				t.Fatal(err)
			}

			s := gsserver.Unstarted(t)
			s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
			s.StartTLS()
			s.Token = "marked-token-1"
			asked, down := 0, 0
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				if r.URL.Path != "/token" {
					if r.Method == http.MethodPost && s.Objects["a"] != nil && asked == 1 && s.Token == "marked-token-1" {
						s.Token, down = "marked-token-2", 3
					}
					return false
				}
				_ = r.ParseForm()
				seen := r.TLS.PeerCertificates
				want := fmt.Sprintf("[%q]", base64.StdEncoding.EncodeToString(der))
				if len(seen) != 1 || !bytes.Equal(seen[0].Raw, der) || r.Form.Get("subject_token") != want {
					t.Errorf("%d certificates, %v", len(seen), r.Form)
				}
				w.Header().Set("Content-Type", "application/json")
				if down--; down >= 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				if !known {
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprint(w, `{"error": "invalid_grant", "error_description": "The certificate is not in the trust store."}`)
					return true
				}
				asked++
				fmt.Fprintf(w, `{"access_token": "marked-token-%d", "token_type": "Bearer", "expires_in": 3600, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}`, asked)
				return true
			})
			identity(t, map[string]any{
				"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
				"subject_token_type": "urn:ietf:params:oauth:token-type:mtls", "token_url": s.URL + "/token",
				"credential_source": map[string]any{"certificate": map[string]any{"certificate_config_location": write("config.json", config)}},
			})
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childOf+"="+s.URL,
				"SSL_CERT_FILE="+write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
			out, err := child.CombinedOutput()
			if known && (err != nil || asked != 2) {
				t.Errorf("%d tokens, %v: %s", asked, err, out)
			}
			if !known && (err == nil || !bytes.Contains(out, []byte("no credentials: ")) || !bytes.Contains(out, []byte("not in the trust store"))) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestMetadataServer takes the token of the machine's service account.
func TestMetadataServer(t *testing.T) {
	s, asked := secure(t)
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		if strings.HasSuffix(r.URL.Path, "/token") {
			fmt.Fprintf(w, `{"access_token": "marked-token-%d", "token_type": "Bearer", "expires_in": 3600}`, asked.Add(1))
		}
	}))
	t.Cleanup(metadata.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	works(t, s, open(t, s, "", named()), asked)
}

// TestMetadataServerDown has the store refuse the token while the metadata server is restarted, or
// cuts connections: the job goes on.
func TestMetadataServerDown(t *testing.T) {
	for _, status := range []int{0, 404, 410, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s, asked := secure(t)
			var down atomic.Int64
			metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Metadata-Flavor", "Google")
				switch {
				case down.Add(-1) < 0:
					fmt.Fprintf(w, `{"access_token": "marked-token-%d", "token_type": "Bearer", "expires_in": 3600}`, asked.Add(1))
				case status == 0:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(status)
				}
			}))
			t.Cleanup(metadata.Close)
			t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
			t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
			store := open(t, s, "", named())
			if _, err := objstore.Put(t.Context(), store, "a", pattern(chunk), objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
			s.Mu.Lock()
			s.Token = fmt.Sprint("marked-token-", asked.Load()+1)
			s.Mu.Unlock()
			down.Store(7) // more than the library's own five attempts
			if data, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<20); err != nil || !bytes.Equal(data, pattern(chunk)) {
				t.Error(err)
			}
		})
	}
}

// TestExpired has the server refuse tokens that it gave before: each operation goes on with a new
// one. If none is accepted, the error says what to do, after one more token.
func TestExpired(t *testing.T) {
	s, asked := secure(t)
	identity(t, account(t, s.URL+"/token"))
	store := open(t, s, "", named())
	if _, err := objstore.Put(t.Context(), store, "a", pattern(3*chunk), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	s.Mu.Lock()
	s.Token = "marked-token-2"
	s.Mu.Unlock()
	if data, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<20); err != nil || !bytes.Equal(data, pattern(3*chunk)) {
		t.Fatal(err)
	}
	s.Mu.Lock()
	s.Token = "none"
	s.Mu.Unlock()
	before := asked.Load()
	for op, err := range operations(t, open(t, s, "", named())) {
		if err == nil || !strings.Contains(err.Error(), "the token has expired or was revoked") || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if n := asked.Load() - before; n != 2 {
		t.Errorf("%d tokens were asked for, want 2", n)
	}
}

// TestClock has a clock that is 20 minutes off: the server of tokens refuses what this machine signs,
// and the error says so. Tokens that nothing is signed for serve, whatever the clock says.
func TestClock(t *testing.T) {
	for off, want := range map[time.Duration]string{
		20 * time.Minute: "20m0s behind the server's", -20 * time.Minute: "20m0s ahead of the server's", 0: "",
	} {
		t.Run(off.String(), func(t *testing.T) {
			s, asked := secure(t)
			give := s.Hook()
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				now := time.Now().Add(off) // the server's clock
				w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
				if r.URL.Path == "/token" {
					var claims struct{ Iat int64 }
					_ = r.ParseForm()
					if _, jwt, ok := strings.Cut(r.Form.Get("assertion"), "."); ok {
						jwt, _, _ = strings.Cut(jwt, ".")
						text, err := base64.RawURLEncoding.DecodeString(jwt)
						if err != nil || json.Unmarshal(text, &claims) != nil {
							t.Errorf("%s: %v", text, err)
						}
						if now.Sub(time.Unix(claims.Iat, 0)).Abs() > 10*time.Minute {
							w.WriteHeader(http.StatusBadRequest)
							fmt.Fprint(w, `{"error": "invalid_grant", "error_description": "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim."}`)
							return true
						}
					}
				}
				return give(w, r)
			})
			identity(t, account(t, s.URL+"/token"))
			if want == "" {
				works(t, s, open(t, s, "", named()), asked)
				return
			}
			for op, err := range operations(t, open(t, s, "", named())) {
				if err == nil || !strings.Contains(err.Error(), "400 invalid_grant") || !strings.HasSuffix(err.Error(), "this machine's clock is "+want+": set it") {
					t.Errorf("%s: %v", op, err)
				}
			}
			subject := filepath.Join(t.TempDir(), "subject")
			if err := os.WriteFile(subject, []byte("token"), 0o600); err != nil {
				t.Fatal(err)
			}
			identity(t, map[string]any{
				"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
				"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": s.URL + "/token", "credential_source": map[string]any{"file": subject},
			})
			works(t, s, open(t, s, "", named()), asked)
		})
	}
}

// TestNoIdentity checks what is said when no token is to be had.
func TestNoIdentity(t *testing.T) {
	s := gsserver.Unstarted(t)
	s.StartTLS()
	status, answer := http.StatusBadRequest, `{"error": "invalid_grant", "error_description": "Invalid JWT signature for marked-secret."}`
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
		return true
	})
	check := func(want string) {
		t.Helper()
		opts := named()
		opts.ReadOptions.MaxAttempts = 3
		for op, err := range operations(t, open(t, s, "", opts)) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", op, err, want)
			}
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	check("set GOOGLE_APPLICATION_CREDENTIALS")
	identity(t, account(t, s.URL+"/token"))
	check("400 invalid_grant: Invalid JWT signature")
	status = http.StatusServiceUnavailable
	check("given up after 3 attempts")
	identity(t, account(t, "https://127.0.0.1:1/token"))
	check("given up after 3 attempts")
}

// TestRefusals checks that the error of every refusal contains what to do and no secret, even if
// the server echoes it.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status                int
		reason, message, want string
	}{
		"bucket":    {404, "notFound", "The specified bucket does not exist.", "the bucket bucket does not exist"},
		"forbidden": {403, "forbidden", "packer does not have storage.objects access.", "these credentials lack the permission (storage.objects."},
		"pays":      {400, "required", "Bucket is a requester pays bucket but no user project provided.", "add user_project=PROJECT"},
		"else":      {400, "invalid", "Something else", "400 invalid: Something else"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := secure(t)
			identity(t, account(t, s.URL+"/token"))
			hook := s.Hook()
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				if hook(w, r) {
					return true
				}
				_, _ = io.Copy(io.Discard, r.Body)
				gsserver.Refuse(w, c.status, c.reason, c.message+" marked-token-1 https://u:marked-secret@h/?upload_id=marked-upload")
				return true
			})
			var log bytes.Buffer
			opts := named()
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			for op, err := range operations(t, open(t, s, "", opts)) {
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v; want %q", op, err, c.want)
				}
				if text := fmt.Sprintf("%v %+v %#v %s", err, err, err, log.String()); strings.Contains(text, "marked") {
					t.Errorf("%s shows a secret: %s", op, text)
				}
			}
		})
	}
}
