package az_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/az"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
)

// operations calls every method once and returns the errors.
func operations(t *testing.T, store *az.Store) map[string]error {
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
	_, said["put large"] = objstore.Put(t.Context(), store, "a", make([]byte, 2*block), objstore.Condition{IfNoneMatch: true})
	return said
}

// works checks that each operation is admitted.
func works(t *testing.T, store *az.Store) {
	t.Helper()
	for op, err := range operations(t, store) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, objstore.ErrExists) && !strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// described checks what doctor shows.
func described(t *testing.T, store objstore.Store, want string) {
	t.Helper()
	d, _ := objstore.Describe(t.Context(), store)
	if got := d.Identity + " from " + d.From; got != want || strings.Contains(got, "marked") {
		t.Errorf("%q, want %q", got, want)
	}
}

// tokenServer gives tokens, which it counts: marked-token-1, and so on. check checks a request.
func tokenServer(t *testing.T, s *azserver.Server, format string, check func(r *http.Request) bool) (at string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	at = entra(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metadata/identity/oauth2/token" && r.Header.Get("Metadata") == "" { // is there a service?
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = r.ParseForm()
		if !check(r) {
			t.Errorf("asked for a token by %s %s %v %v", r.Method, r.URL, r.Form, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, format, asked.Add(1))
	})
	s.Token = "marked-token-1"
	return at, asked
}

// entra starts a server that is where tenants ask for tokens.
func entra(t *testing.T, serve http.HandlerFunc) (at string) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tenant/v2.0/.well-known/openid-configuration" {
			serve(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"authorization_endpoint": "https://%[1]s/tenant/oauth2/v2.0/authorize",
			"token_endpoint": "https://%[1]s/tenant/oauth2/v2.0/token", "issuer": "https://%[1]s/tenant/v2.0"}`, r.Host)
	}))
	t.Cleanup(s.Close)
	authorities.AddCert(s.Certificate())
	return s.URL
}

const oauthAnswer = `{"access_token": "marked-token-%d", "token_type": "Bearer", "expires_in": 3599}`

// TestIdentities uses each kind of credentials; one token serves all requests.
func TestIdentities(t *testing.T) {
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("marked-assertion\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	form := func(name, value string) func(r *http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method == http.MethodPost && r.URL.Path == "/tenant/oauth2/v2.0/token" && r.Form.Get("client_id") == "client" &&
				strings.HasPrefix(r.Form.Get("scope"), "https://storage.azure.com/.default ") && r.Form.Get(name) == value
		}
	}
	client := []string{"AZURE_CLIENT_ID=client", "AZURE_TENANT_ID=tenant", "AZURE_AUTHORITY_HOST=@"}
	for name, c := range map[string]struct {
		environment []string // @ is the address of the token server
		answer      string
		check       func(r *http.Request) bool
		want        string
	}{
		"secret": {append(client, "AZURE_CLIENT_SECRET=marked-s"), oauthAnswer, form("client_secret", "marked-s"), "client client from AZURE_CLIENT_SECRET"},
		"workload": {append(client, "AZURE_FEDERATED_TOKEN_FILE="+file), oauthAnswer, form("client_assertion", "marked-assertion"),
			"client client from AZURE_FEDERATED_TOKEN_FILE"},
		"machine": {[]string{"AZURE_POD_IDENTITY_AUTHORITY_HOST=@"}, `{"access_token": "marked-token-%d", "expires_on": "4000000000"}`, func(r *http.Request) bool {
			return r.Header.Get("Metadata") == "true" && r.URL.Path == "/metadata/identity/oauth2/token" && r.Form.Get("resource") == "https://storage.azure.com"
		}, "managed identity from 169.254.169.254"},
		"app service": {[]string{"IDENTITY_ENDPOINT=@/msi", "IDENTITY_HEADER=marked-h", "AZURE_CLIENT_ID=client"}, `{"access_token": "marked-token-%d", "expires_on": 4000000000}`,
			func(r *http.Request) bool {
				return r.Header.Get("X-Identity-Header") == "marked-h" && r.Form.Get("client_id") == "client"
			},
			"managed identity client from IDENTITY_ENDPOINT"},
		"Azure ML": {[]string{"MSI_ENDPOINT=@/msi", "MSI_SECRET=marked-h", "DEFAULT_IDENTITY_CLIENT_ID=client"}, `{"access_token": "marked-token-%d", "expires_on": "2036-01-02 15:04:05"}`,
			func(r *http.Request) bool {
				return r.Header.Get("Secret") == "marked-h" && r.Form.Get("clientid") == "client"
			}, "managed identity from MSI_ENDPOINT"},
		"token":   {[]string{"AZURE_STORAGE_TOKEN=marked-token-1"}, "", nil, "token from AZURE_STORAGE_TOKEN"},
		"key":     {[]string{"AZURE_STORAGE_ACCOUNT_NAME=acct", "AZURE_STORAGE_KEY=bWFya2VkIGFjY291bnQga2V5"}, "", nil, "account key from AZURE_STORAGE_KEY"},
		"SAS":     {[]string{"AZURE_STORAGE_SAS_TOKEN=?sv=2022&sp=rwdl&sig=marked%2Bs%3D&se=" + end}, "", nil, "SAS with sp=rwdl until " + end + " from AZURE_STORAGE_SAS_TOKEN"},
		"string":  {[]string{"AZURE_STORAGE_CONNECTION_STRING=AccountName=acct;AccountKey=bWFya2VkIGFjY291bnQga2V5;BlobEndpoint=&/acct"}, "", nil, "account key from AZURE_STORAGE_CONNECTION_STRING"},
		"another": {[]string{"AZURE_STORAGE_ACCOUNT_NAME=other", "AZURE_STORAGE_KEY=bWFya2Vk", "AZURE_STORAGE_TOKEN=marked-token-1"}, "", nil, "token from AZURE_STORAGE_TOKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			s := azserver.New(t)
			s.SAS = url.Values{"sig": {"marked+s="}, "sp": {"rwdl"}}
			s.Token = "marked-token-1"
			at, asked := "", new(atomic.Int64)
			if c.check != nil {
				at, asked = tokenServer(t, s, c.answer, c.check)
			}
			for _, variable := range c.environment {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, strings.NewReplacer("@", at, "=&", "="+s.URL).Replace(value))
			}
			store := openAs(t, s, "", quick())
			for range 2 {
				works(t, store)
			}
			described(t, store, c.want)
			if c.check != nil && asked.Load() != 1 {
				t.Errorf("%d tokens were asked for", asked.Load())
			}
			for _, r := range s.Requests("") {
				if strings.Contains(r, "marked-token") {
					t.Errorf("a token in an address: %s", r)
				}
			}
		})
	}
}

// TestCLI takes the token of the Azure CLI where the machine has no identity.
func TestCLI(t *testing.T) {
	s := azserver.New(t)
	s.Token = "marked-token-1"
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	write := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "az"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	store := openAs(t, s, "", quick())
	write("echo 'ERROR: Please run az login' >&2; exit 1")
	if _, err := store.Stat(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "Please run az login") || !strings.Contains(err.Error(), "no credentials") {
		t.Error(err)
	}
	write(`echo '{"accessToken": "marked-token-1", "expiresOn": "2036-01-01 00:00:00", "expires_on": 4000000000}'`)
	works(t, store)
	described(t, store, "the user of az login from the Azure CLI")
}

// TestExpired has the server refuse a token that it gave before: each operation goes on with a new
// one. If none is accepted, the error says what to do, after one more token.
func TestExpired(t *testing.T) {
	s := azserver.New(t)
	at, asked := tokenServer(t, s, `{"access_token": "marked-token-%d", "expires_on": "4000000000"}`, func(*http.Request) bool { return true })
	t.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", at)
	store := openAs(t, s, "", quick())
	put(t, store, "a", pattern(3*block))
	s.Token = "marked-token-2"
	if data, _, err := objstore.ReadAll(t.Context(), store, "a", 1<<20); err != nil || !bytes.Equal(data, pattern(3*block)) {
		t.Fatal(err)
	}
	s.Token = "none"
	before := asked.Load()
	for op, err := range operations(t, openAs(t, s, "", quick())) {
		if err == nil || !strings.Contains(err.Error(), "is not accepted") || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if n := asked.Load() - before; n != 2 {
		t.Errorf("%d tokens were asked for, want 2", n)
	}
}

// TestNoIdentity checks what is said when no token is to be had.
func TestNoIdentity(t *testing.T) {
	s := azserver.New(t)
	t.Setenv("PATH", t.TempDir())
	status := http.StatusUnauthorized
	at := entra(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret marked-s."}`)
	})
	check := func(want string) {
		t.Helper()
		opts := quick()
		opts.ReadOptions.MaxAttempts = 3
		for op, err := range operations(t, openAs(t, s, "", opts)) {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "marked") {
				t.Errorf("%s: %v; want %q", op, err, want)
			}
		}
	}
	check("run az login")
	t.Setenv("AZURE_CLIENT_SECRET", "marked-s")
	check("AZURE_CLIENT_ID or AZURE_STORAGE_CLIENT_ID and AZURE_TENANT_ID")
	t.Setenv("AZURE_CLIENT_ID", "client")
	t.Setenv("AZURE_TENANT_ID", "tenant")
	t.Setenv("AZURE_AUTHORITY_HOST", "http://login.example")
	check("AZURE_AUTHORITY_HOST")
	t.Setenv("AZURE_AUTHORITY_HOST", at)
	check("401 invalid_client: AADSTS7000215")
	status = http.StatusServiceUnavailable
	check("given up after 3 attempts")
	t.Setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
	check("given up after 3 attempts")
}

// TestSAS has signatures that lack rights, and one that has expired. Reading needs no right to
// list.
func TestSAS(t *testing.T) {
	s := azserver.New(t)
	put(t, open(t, s, "", quick()), "a", pattern(1000))
	signed := func(sp string, end time.Duration) *az.Store {
		opts := quick()
		sas := url.Values{"sig": {"marked"}, "sp": {sp}, "se": {time.Now().Add(end).UTC().Format(time.RFC3339)}, "sv": {"2021-12-02"}}
		opts.SAS = sas.Encode()
		s.Mu.Lock()
		s.SAS = sas
		s.Mu.Unlock()
		return openAs(t, s, "", opts)
	}
	for op, err := range operations(t, signed("r", time.Hour)) {
		want := map[string]string{"put": "needs c and w", "put large": "needs c and w", "list": "needs l", "delete": "needs d"}[op]
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "has sp=r, and this "+want) {
			t.Errorf("%s: %v", op, err)
		}
	}
	for op, err := range operations(t, signed("rwdl", -time.Hour)) {
		if err == nil || !strings.Contains(err.Error(), "the SAS in the address has expired at 20") || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestAnonymous reads a public container, and is told why others refuse.
func TestAnonymous(t *testing.T) {
	s := azserver.New(t)
	put(t, open(t, s, "", quick()), "a", pattern(1000))
	opts := quick()
	opts.Anonymous = true
	for _, code := range []string{"", "ResourceNotFound", "PublicAccessNotPermitted", "NoAuthenticationInformation"} {
		s.Private = code
		_, _, err := objstore.ReadAll(t.Context(), openAs(t, s, "", opts), "a", 1000)
		if (err == nil) != (code == "") || err != nil && (!strings.Contains(err.Error(), "use credentials") || errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%q: %v", code, err)
		}
	}
}

// TestRefusals checks that the error of every refusal contains what to do and no secret, even if
// the server echoes it.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		code, want string
	}{
		"container": {404, "ContainerNotFound", "check the name of the container box"},
		"key":       {403, "AuthenticationFailed", "the key in AZURE_STORAGE_ACCOUNT_KEY is not one of the account"},
		"no keys":   {403, "KeyBasedAuthenticationNotPermitted", "the account accepts no keys"},
		"archive":   {409, "BlobArchived", "another access tier"},
		"lease":     {412, "LeaseIdMissing", "412 LeaseIdMissing"},
		"account":   {404, "ResourceNotFound", "check the account"},
		"else":      {400, "Odd", "400 Odd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := azserver.New(t)
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				azserver.Refuse(w, c.status, c.code, "no")
				return true
			})
			for op, err := range operations(t, open(t, s, "", quick())) {
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, objstore.ErrExists) {
					t.Errorf("%s: %v; want %q", op, err, c.want)
				}
			}
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				azserver.Refuse(w, c.status, c.code, "bWFya2VkIGFjY291bnQga2V5 https://u:marked-secret@h/?sig=marked")
				return true
			})
			var log bytes.Buffer
			opts := quick()
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			for op, err := range operations(t, open(t, s, "", opts)) {
				if text := fmt.Sprintf("%v %+v %#v %s", err, err, err, log.String()); strings.Contains(text, "marked") || strings.Contains(text, "bWFya2Vk") {
					t.Errorf("%s shows a secret: %s", op, text)
				}
			}
		})
	}
}

// TestWrongAccount names an account that does not exist, which no name server knows.
func TestWrongAccount(t *testing.T) {
	opts := quick()
	opts.Endpoint = "http://acct.blob.invalid"
	opts.ReadOptions.MaxAttempts = 2
	_, err := open(t, azserver.New(t), "", opts).Stat(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), "given up") {
		t.Error(err)
	}
	if strings.Contains(err.Error(), "no such host") && !strings.Contains(err.Error(), "check the account acct") {
		t.Error(err)
	}
}
