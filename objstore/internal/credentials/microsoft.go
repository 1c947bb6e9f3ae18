package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Setting returns the first of the environment's variables that is set, and its name; or "", and
// all names.
func Setting(names ...string) (value, name string) {
	for _, name := range names {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return value, name
		}
	}
	return "", strings.Join(names, " or ")
}

// Microsoft returns a source with the credentials of Microsoft Entra ID, for a resource such as
// https://storage.azure.com/: a client with a secret or with the token of a workload, a token, the
// identity of the machine, or the Azure CLI. The variables are the ones of the Azure CLI and of the
// crate object_store.
func Microsoft(resource string, client *http.Client, secrets *ranged.Secrets) *Source {
	s := newSource(client, secrets)
	s.places = "the AZURE_ variables, the identity of the machine, az login"
	s.advice = "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, " +
		"run az login, or read a public container with anonymous=true"
	s.find = func(ctx context.Context) (oauth2.TokenSource, error) { return s.findMicrosoft(ctx, resource) }
	return s
}

func (s *Source) findMicrosoft(ctx context.Context, resource string) (oauth2.TokenSource, error) {
	id, idName := Setting("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID")
	tenant, tenantName := Setting("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID")
	secret, secretName := Setting("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET")
	file, fileName := Setting("AZURE_FEDERATED_TOKEN_FILE")
	token, tokenName := Setting("AZURE_STORAGE_TOKEN")
	if secret == "" && file == "" {
		if token == "" {
			return machine{s, ctx, resource, id}, nil
		}
		s.found("token", tokenName)
		return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token}), nil
	}
	if id == "" || tenant == "" {
		return nil, fmt.Errorf("%s and %s are needed as well", idName, tenantName)
	}
	at, err := tokenURL(tenant)
	if err != nil {
		return nil, err
	}
	s.secrets.Remember(secret)
	c := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: at,
		Scopes: []string{resource + ".default"}, AuthStyle: oauth2.AuthStyleInParams}
	if secret == "" {
		s.found("client "+id, fileName)
		return workload{ctx, c, file}, nil
	}
	s.found("client "+id, secretName)
	return c.TokenSource(ctx), nil
}

// tokenURL returns where clients of a tenant ask for tokens.
func tokenURL(tenant string) (string, error) {
	host, name := Setting("AZURE_AUTHORITY_HOST", "AZURE_STORAGE_AUTHORITY_HOST")
	if host = cmp.Or(host, "https://login.microsoftonline.com"); !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil || !ranged.Private(u) {
		return "", fmt.Errorf("%s is not a URL with https://; give one like https://login.microsoftonline.com", name)
	}
	return u.JoinPath(tenant, "oauth2/v2.0/token").String(), nil
}

// workload asks for tokens with the token in a file, which is replaced before it expires
// (https://azure.github.io/azure-workload-identity).
type workload struct {
	ctx  context.Context
	c    clientcredentials.Config
	file string
}

// Token implements oauth2.TokenSource.
func (w workload) Token() (*oauth2.Token, error) {
	assertion, err := os.ReadFile(w.file)
	if err != nil {
		return nil, err
	}
	w.c.EndpointParams = url.Values{
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {strings.TrimSpace(string(assertion))},
	}
	return w.c.Token(w.ctx)
}

// machine asks the machine for tokens: App Service and Azure ML have an address for that in the
// environment, virtual machines and Kubernetes a known one
// (https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token).
// Elsewhere the Azure CLI has tokens.
type machine struct {
	s        *Source
	ctx      context.Context
	resource string
	id       string // of a client, or empty
}

// Token implements oauth2.TokenSource.
func (m machine) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(m.ctx, 20*time.Second)
	defer cancel()
	token, from, err := m.ask(ctx)
	if err == nil {
		m.s.found("managed identity "+m.id, from)
		return token, nil
	}
	if t, ok := errors.AsType[*ranged.Transient](err); ok && t.Answered {
		return nil, err
	}
	text, cliErr := exec.CommandContext(ctx, "az", "account", "get-access-token", "--resource", m.resource, "--output",
		"json").Output()
	if cliErr == nil {
		m.s.found("the user of az login", "the Azure CLI")
		return parseToken(text)
	}
	if failed, ok := errors.AsType[*exec.ExitError](cliErr); ok {
		line, _, _ := strings.Cut(string(failed.Stderr), "\n")
		cliErr = errors.New(line)
	}
	return nil, fmt.Errorf("managed identity by %s: %v; Azure CLI: %v", from, err, cliErr)
}

// ask asks an address that needs no proxy.
func (m machine) ask(ctx context.Context) (token *oauth2.Token, from string, err error) {
	query, header := url.Values{"resource": {m.resource}, "api-version": {"2018-02-01"}},
		http.Header{"Metadata": {"true"}}
	client, key := m.id, "client_id"
	at, from := Setting("IDENTITY_ENDPOINT", "MSI_ENDPOINT")
	switch secret, _ := Setting("IDENTITY_HEADER", "MSI_SECRET"); {
	case at == "":
		at, _ = Setting("AZURE_POD_IDENTITY_AUTHORITY_HOST")
		at, from = cmp.Or(at, "http://169.254.169.254")+"/metadata/identity/oauth2/token", "169.254.169.254"
	case from == "IDENTITY_ENDPOINT":
		query.Set("api-version", "2019-08-01")
		header.Set("X-Identity-Header", secret)
	default:
		query.Set("api-version", "2017-09-01")
		header.Set("Secret", secret)
		client, key = cmp.Or(client, os.Getenv("DEFAULT_IDENTITY_CLIENT_ID")), "clientid"
	}
	if client != "" {
		query.Set(key, client)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?"+query.Encode(), nil)
	if err != nil {
		return nil, from, errors.New("its address is not a URL")
	}
	request.Header = header
	dialer := net.Dialer{Timeout: time.Second} // elsewhere nobody answers
	answer, err := (&http.Client{Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, from, ranged.TransportError(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if a := (ranged.Answer{Status: answer.StatusCode}); ranged.TransientStatus(a.Status) || err != nil {
		return nil, from, a.Transient()
	} else if a.Status != http.StatusOK {
		return nil, from, a
	}
	token, err = parseToken(text)
	return token, from, err
}

// parseToken parses the answer of a machine or of the Azure CLI. A token whose end it cannot parse
// is used until it is refused.
func parseToken(text []byte) (*oauth2.Token, error) {
	var t struct {
		Access  string          `json:"access_token"`
		AccessC string          `json:"accessToken"`
		End     json.RawMessage `json:"expires_on"` // a number, or one in a string
	}
	if err := json.Unmarshal(text, &t); err != nil || t.Access+t.AccessC == "" {
		return nil, errors.New("the answer has no token")
	}
	token := &oauth2.Token{AccessToken: t.Access + t.AccessC}
	if end, err := strconv.ParseInt(strings.Trim(string(t.End), `"`), 10, 64); err == nil {
		token.Expiry = time.Unix(end, 0)
	}
	return token, nil
}
