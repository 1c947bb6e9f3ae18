package credentials_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/az"
	"github.com/shardtool/shardtool/objstore/internal/gs"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

func TestMain(m *testing.M) {
	// The configuration of the machine must not affect the tests.
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_"} {
			if strings.HasPrefix(name, prefix) {
				os.Unsetenv(name)
			}
		}
	}
	goleak.VerifyTestMain(m)
}

// world is a store, and the source of its tokens, in memory: all requests go to it. A token serves
// for an hour. It is token-1 for the first one, and so on.
type world struct {
	store   http.Handler
	accept  func(token string) // has the store accept that token alone
	answer  func(w http.ResponseWriter, r *http.Request, token string, end time.Time)
	file    string // what the source reads, or ""
	content string // of file

	mu    sync.Mutex
	given int
	asked int       // since the outage
	down  string    // the kind of the outage, or ""
	until time.Time // its end, from the first request on
}

// RoundTrip implements http.RoundTripper.
func (o *world) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.RequestURI = r.URL.RequestURI(); r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	if r.URL.Host == "store.test" {
		o.store.ServeHTTP(w, r)
		return w.Result(), nil
	}
	if strings.HasSuffix(r.URL.Path, "/openid-configuration") {
		fmt.Fprintf(w, `{"authorization_endpoint": "https://login.test/tenant/oauth2/v2.0/authorize",
			"token_endpoint": "https://login.test/tenant/oauth2/v2.0/token", "issuer": "https://login.test/tenant/v2.0"}`)
		return w.Result(), nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.outage() {
	case "":
	case "refused":
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case "half a file": // which the source reads, and which means nothing to who gives tokens
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "invalid_grant", "error_description": "The assertion cannot be parsed."}`)
		return w.Result(), nil
	default:
		var status int
		_, _ = fmt.Sscan(o.down, &status)
		w.WriteHeader(status)
		return w.Result(), nil
	}
	o.give(w, r)
	return w.Result(), nil
}

// outage returns the kind of the outage, which ends 20 s after the first request to the source. mu
// is held.
func (o *world) outage() string {
	if o.down == "" {
		return ""
	}
	if o.asked++; o.asked == 1 {
		o.until = time.Now().Add(20 * time.Second)
	}
	if time.Now().Before(o.until) {
		return o.down
	}
	o.down = ""
	return ""
}

func (o *world) give(w http.ResponseWriter, r *http.Request) {
	o.given++
	token := fmt.Sprint("token-", o.given)
	o.accept(token)
	w.Header().Set("Content-Type", "application/json")
	o.answer(w, r, token, time.Now().Add(time.Hour))
}

// fail has the source fail from now on, and the store refuse the last token if it is revoked.
func (o *world) fail(t *testing.T, kind string, revoked bool) {
	o.mu.Lock()
	o.down, o.asked = kind, 0
	o.mu.Unlock()
	if revoked {
		o.accept("none")
	}
	if kind == "half a file" {
		write(t, o.file, o.content[:len(o.content)/2])
		time.AfterFunc(20*time.Second, func() { write(t, o.file, o.content) })
	}
}

func write(t *testing.T, path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Error(err)
	}
}

func (o *world) client() *http.Client { return &http.Client{Transport: o} }

// oauth answers as most servers of tokens do.
func oauth(w http.ResponseWriter, _ *http.Request, token string, _ time.Time) {
	fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600,
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}`, token)
}

func (o *world) google(t *testing.T, file map[string]any) objstore.Store {
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "google.json")
	write(t, path, string(text))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
	if o.file == "" {
		o.file, o.content = path, string(text)
	}
	s := gsserver.Unstarted(t)
	o.store = s
	o.accept = func(token string) { s.Mu.Lock(); s.Token = token; s.Mu.Unlock() }
	opts := gs.Options{Endpoint: "https://store.test"}
	opts.HTTPClient = o.client()
	store, err := gs.New("bucket", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// private makes one key for all tests.
var private = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func serviceAccount(t *testing.T) map[string]any {
	key, err := private()
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return map[string]any{"type": "service_account", "client_email": "packer@project.iam.gserviceaccount.com",
		"private_key": string(text), "token_uri": "https://login.test/token"}
}

func (o *world) azure(t *testing.T, environment ...string) objstore.Store {
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	s := azserver.Unstarted(t)
	o.store = s
	o.accept = func(token string) { s.Mu.Lock(); s.Token = token; s.Mu.Unlock() }
	opts := az.Options{Endpoint: "https://store.test"}
	opts.HTTPClient = o.client()
	store, err := az.New(azserver.Account, "box", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// inFile writes a file that others rotate.
func (o *world) inFile(t *testing.T, content string) string {
	o.file, o.content = filepath.Join(t.TempDir(), "token"), content
	write(t, o.file, content)
	return o.file
}

func (o *world) aws(t *testing.T, environment ...string) objstore.Store {
	for _, variable := range append(environment, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
		"AWS_CONFIG_FILE="+os.DevNull) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	s := s3server.Unstarted(t)
	o.store = s
	o.accept = func(token string) {
		s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
			switch r.Header.Get("X-Amz-Security-Token") {
			case token:
				return false
			case "":
				s3server.Refuse(w, r, http.StatusForbidden, "InvalidAccessKeyId")
			default:
				s3server.Refuse(w, r, http.StatusBadRequest, "ExpiredToken")
			}
			return true
		})
	}
	store, err := s3.New(t.Context(), "bucket", "", s3.Options{Endpoint: "https://store.test", HTTPClient: o.client()})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// agent answers as the agents of ECS, EKS and EC2 do.
func agent(w http.ResponseWriter, r *http.Request, token string, end time.Time) {
	switch {
	case r.Method == http.MethodPut:
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		fmt.Fprint(w, "session")
	case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
		fmt.Fprint(w, "role")
	default:
		fmt.Fprintf(w, `{"Code": "Success", "AccessKeyId": "AKID", "SecretAccessKey": "secret", "Token": %q, "Expiration": %q}`, token,
			end.UTC().Format(time.RFC3339))
	}
}

// sources has the function that sets each source up.
var sources = map[string]func(t *testing.T, o *world) objstore.Store{
	"Google service account": func(t *testing.T, o *world) objstore.Store { return o.google(t, serviceAccount(t)) },
	"Google federation": func(t *testing.T, o *world) objstore.Store {
		return o.google(t, map[string]any{"type": "external_account", "token_url": "https://login.test/token",
			"audience":           "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
			"subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
			"credential_source":  map[string]any{"file": o.inFile(t, "subject token")}})
	},
	"Google impersonation": func(t *testing.T, o *world) objstore.Store {
		o.answer = func(w http.ResponseWriter, r *http.Request, token string, end time.Time) {
			if r.URL.Host == "login.test" {
				oauth(w, r, token, end)
				return
			}
			fmt.Fprintf(w, `{"accessToken": %q, "expireTime": %q}`, token, end.UTC().Format(time.RFC3339))
		}
		return o.google(t, map[string]any{"type": "impersonated_service_account", "source_credentials": serviceAccount(t),
			"service_account_impersonation_url": "https://iam.test/v1/projects/-/serviceAccounts/a@b.c:generateAccessToken"})
	},
	"Azure secret": func(t *testing.T, o *world) objstore.Store {
		return o.azure(t, "AZURE_CLIENT_ID=client", "AZURE_TENANT_ID=tenant", "AZURE_AUTHORITY_HOST=https://login.test",
			"AZURE_CLIENT_SECRET=secret")
	},
	"Azure certificate": func(t *testing.T, o *world) objstore.Store {
		return o.azure(t, "AZURE_CLIENT_ID=client", "AZURE_TENANT_ID=tenant", "AZURE_AUTHORITY_HOST=https://login.test",
			"AZURE_CLIENT_CERTIFICATE_PATH="+o.inFile(t, certificate(t)))
	},
	"Azure workload": func(t *testing.T, o *world) objstore.Store {
		return o.azure(t, "AZURE_CLIENT_ID=client", "AZURE_TENANT_ID=tenant", "AZURE_AUTHORITY_HOST=https://login.test",
			"AZURE_FEDERATED_TOKEN_FILE="+o.inFile(t, "assertion"))
	},
	"Azure IMDS": func(t *testing.T, o *world) objstore.Store {
		return o.azure(t, "AZURE_POD_IDENTITY_AUTHORITY_HOST=http://imds.test")
	},
	"Azure App Service": func(t *testing.T, o *world) objstore.Store {
		return o.azure(t, "IDENTITY_ENDPOINT=http://msi.test/msi", "IDENTITY_HEADER=header")
	},
	"AWS ECS and EKS": func(t *testing.T, o *world) objstore.Store {
		o.answer = agent
		return o.aws(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1/v1/credentials",
			"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE="+o.inFile(t, "pod token"))
	},
	"AWS EC2": func(t *testing.T, o *world) objstore.Store {
		o.answer = agent
		return o.aws(t, "AWS_EC2_METADATA_DISABLED=false")
	},
	"AWS web identity": func(t *testing.T, o *world) objstore.Store {
		o.answer = func(w http.ResponseWriter, _ *http.Request, token string, end time.Time) {
			w.Header().Set("Content-Type", "text/xml")
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
				<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKID</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
				<SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
				</AssumeRoleWithWebIdentityResponse>`, token, end.UTC().Format(time.RFC3339))
		}
		return o.aws(t, "AWS_ROLE_ARN=arn:aws:iam::123456789012:role/r",
			"AWS_WEB_IDENTITY_TOKEN_FILE="+o.inFile(t, "web token"))
	},
}

// certificate returns a certificate and its key.
func certificate(t *testing.T) string {
	signer, err := private()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(100 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// TestOutages has each source fail for 20 s when a token is due, and when the store refuses one: a
// job that uses the store goes on.
func TestOutages(t *testing.T) {
	for name, set := range sources {
		for _, kind := range []string{"404", "410", "429", "500", "503", "refused", "half a file"} {
			for _, revoked := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", kind, "/revoked=", revoked), func(t *testing.T) {
					o := &world{answer: oauth}
					synctest.Test(t, func(t *testing.T) {
						store := set(t, o)
						if kind == "half a file" && o.file == "" {
							return // it reads none
						}
						data := []byte(strings.Repeat("content", 1000))
						if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{}); err != nil {
							t.Fatal(err)
						}
						for minute := 0; minute < 150; minute += 3 {
							if minute == 30 {
								o.fail(t, kind, revoked)
							}
							if got, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<20); err != nil || len(got) != len(data) {
								t.Fatalf("minute %d: %d bytes, %v", minute, len(got), err)
							}
							time.Sleep(3 * time.Minute)
						}
						o.mu.Lock()
						defer o.mu.Unlock()
						if o.given < 3 || o.given > 40 || o.down != "" && kind != "half a file" {
							t.Errorf("%d tokens were given; the outage %q is over", o.given, o.down)
						}
					})
				})
			}
		}
	}
}
