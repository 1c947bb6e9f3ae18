package az

import (
	"cmp"
	"context"
	"encoding/base64"
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
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
	"github.com/shardtool/shardtool/objstore/internal/tokens"
)

// identity is how requests are authorized: by a key, a SAS, a token or not at all.
type identity struct {
	key    []byte
	sas    url.Values
	tokens *tokens.Source
	name   string                     // what it is
	from   string                     // where it was found
	found  *atomic.Pointer[[2]string] // name and from of tokens, when they were found
}

// emulator is the connection string that UseDevelopmentStorage=true stands for
// (https://learn.microsoft.com/azure/storage/common/storage-connect-azurite). The key is public.
const emulator = "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// resource is what tokens are for.
const resource = "https://storage.azure.com/"

// setting returns the first of the variables that is set, and its name.
func setting(names ...string) (value, name string) {
	for _, name := range names {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return value, name
		}
	}
	return "", strings.Join(names, " or ")
}

// identify finds the credentials and the endpoint, in the options or in the environment. The
// variables are the ones of the Azure CLI and of the crate object_store.
func (s *Store) identify(client *http.Client) (err error) {
	const inAddress = "the address"
	conn, connName := setting("AZURE_STORAGE_CONNECTION_STRING")
	account, _ := setting("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
	key, keyName := setting("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY")
	sas, sasName := setting("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
	endpoint, _ := setting("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
	if conn != "" {
		c := connection(conn)
		account, endpoint = c["AccountName"], c["BlobEndpoint"]
		if u, err := url.Parse(endpoint); account == "" && err == nil {
			account, _, _ = strings.Cut(u.Host, ".")
		}
		key, keyName, sas, sasName = c["AccountKey"], connName, c["SharedAccessSignature"], connName
	}
	if account != "" && account != s.account {
		key, sas, endpoint = "", "", "" // of another account
	}
	if s.opts.SAS != "" {
		sas, sasName, key = s.opts.SAS, inAddress, ""
	}
	s.opts.Endpoint = cmp.Or(s.opts.Endpoint, endpoint)
	s.auth = identity{name: "anonymous", from: inAddress}
	switch {
	case s.opts.Anonymous:
	case key != "":
		s.auth = identity{name: "account key", from: keyName}
		if s.auth.key, err = base64.StdEncoding.DecodeString(key); err != nil {
			return fmt.Errorf("the account key in %s is not base64: give it as the portal shows it", keyName)
		}
		s.Secrets.Remember(key)
	case sas != "":
		s.auth = identity{name: "SAS", from: sasName}
		if s.auth.sas, err = url.ParseQuery(strings.TrimPrefix(sas, "?")); err != nil || !s.auth.sas.Has("sig") {
			return fmt.Errorf("the SAS in %s is not a query with sig=: give it as it was made, and quote it for the shell", sasName)
		}
		s.Secrets.Remember(s.auth.sas.Get("sig"), url.QueryEscape(s.auth.sas.Get("sig")))
	default:
		s.auth = identity{from: "the AZURE_ variables, the identity of the machine, az login", found: new(atomic.Pointer[[2]string])}
		s.auth.tokens = &tokens.Source{
			Find: s.auth.find, Client: client, Secrets: &s.Secrets,
			Advice: "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, " +
				"run az login, or read a public container with anonymous=true",
		}
	}
	return nil
}

// connection parses a connection string
// (https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string).
func connection(text string) map[string]string {
	c := map[string]string{}
	for part := range strings.SplitSeq(strings.Replace(text, "UseDevelopmentStorage=true", emulator, 1), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		c[name] = value
	}
	if c["BlobEndpoint"] == "" && c["EndpointSuffix"] != "" {
		c["BlobEndpoint"] = cmp.Or(c["DefaultEndpointsProtocol"], "https") + "://" + c["AccountName"] + ".blob." + c["EndpointSuffix"]
	}
	return c
}

func (i *identity) anonymous() bool { return i.key == nil && i.sas == nil && i.tokens == nil }

// describe returns who sends the requests, and where that was found.
func (i *identity) describe() (name, from string) {
	if i.found != nil && i.found.Load() != nil {
		return i.found.Load()[0], i.found.Load()[1]
	}
	name = i.name
	if end := i.sas.Get("se"); end != "" {
		name += " with sp=" + ranged.Clean(i.sas.Get("sp")) + " until " + ranged.Clean(end)
	}
	return name, i.from
}

// advice tells what to do when the server refuses the identity.
func (i *identity) advice(op, code string) string {
	name, from := i.describe()
	lacks := !strings.HasPrefix(code, "Authentication") && !strings.HasPrefix(code, "InvalidAuthentication")
	need := map[string][2]string{
		"get": {"r", "Reader"}, "list": {"l", "Reader"}, "put": {"c and w", "Contributor"}, "delete": {"d", "Contributor"},
	}[op]
	end, err := time.Parse(time.RFC3339, i.sas.Get("se"))
	switch {
	case i.sas != nil && err == nil && time.Now().After(end):
		return fmt.Sprintf("the SAS in %s has expired at %s: ask for another", from, end.Format(time.RFC3339))
	case i.sas != nil && lacks:
		return fmt.Sprintf("the SAS in %s lacks a permission, or is for something else: it has sp=%s, and this needs %s", from, ranged.Clean(i.sas.Get("sp")), need[0])
	case i.sas != nil:
		return fmt.Sprintf("the SAS in %s is not valid here: ask for another, for this container", from)
	case i.key != nil:
		return fmt.Sprintf("the key in %s is not one of the account, or the account refuses this network: check both", from)
	case lacks:
		return fmt.Sprintf("%s (%s) lacks a role, or the account refuses this network: ask for Storage Blob Data %s", name, from, need[1])
	}
	return fmt.Sprintf("the token of %s (%s) is not accepted: check its tenant, log in again, or renew its secret", name, from)
}

// find finds what tokens are made from: a client with a secret or with the token of a workload, a
// token, the identity of the machine, or the Azure CLI.
func (i *identity) find(ctx context.Context) (source oauth2.TokenSource, err error) {
	id, idName := setting("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID")
	tenant, tenantName := setting("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID")
	secret, from := setting("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET")
	file, fileName := setting("AZURE_FEDERATED_TOKEN_FILE")
	token, tokenName := setting("AZURE_STORAGE_TOKEN")
	name := "client " + id
	found := func(name, from string) { i.found.Store(&[2]string{strings.TrimSpace(name), from}) }
	i.tokens.Secrets.Remember(secret)
	switch {
	case secret != "" || file != "":
		if id == "" || tenant == "" {
			return nil, fmt.Errorf("%s and %s are needed as well", idName, tenantName)
		}
		c := clientcredentials.Config{ClientID: id, ClientSecret: secret, Scopes: []string{resource + ".default"}, AuthStyle: oauth2.AuthStyleInParams}
		if c.TokenURL, err = tokenURL(tenant); err != nil {
			return nil, err
		}
		if secret == "" {
			from = fileName
			source = workload{ctx, c, file}
			break
		}
		source = c.TokenSource(ctx)
	case token != "":
		name, from, source = "token", tokenName, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
	default:
		return machine{ctx, id, found}, nil
	}
	found(name, from)
	return source, nil
}

// tokenURL returns where clients of a tenant ask for tokens.
func tokenURL(tenant string) (string, error) {
	host, name := setting("AZURE_AUTHORITY_HOST", "AZURE_STORAGE_AUTHORITY_HOST")
	if host = cmp.Or(host, "https://login.microsoftonline.com"); !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil || !secure(u) {
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
	ctx   context.Context
	id    string // of a client, or empty
	found func(name, from string)
}

// Token implements oauth2.TokenSource.
func (m machine) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(m.ctx, 20*time.Second)
	defer cancel()
	token, from, err := m.ask(ctx)
	if err == nil {
		m.found("managed identity "+m.id, from)
		return token, nil
	}
	if t, ok := errors.AsType[*ranged.Transient](err); ok && t.Answered {
		return nil, err
	}
	text, cliErr := exec.CommandContext(ctx, "az", "account", "get-access-token", "--resource", resource, "--output", "json").Output()
	if cliErr == nil {
		m.found("the user of az login", "the Azure CLI")
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
	query, header := url.Values{"resource": {resource}, "api-version": {"2018-02-01"}}, http.Header{"Metadata": {"true"}}
	client, key := m.id, "client_id"
	at, from := setting("IDENTITY_ENDPOINT", "MSI_ENDPOINT")
	switch secret, _ := setting("IDENTITY_HEADER", "MSI_SECRET"); {
	case at == "":
		at, _ = setting("AZURE_POD_IDENTITY_AUTHORITY_HOST")
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
	answer, err := (&http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}).Do(request)
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

// parseToken parses the answer of a machine or of the Azure CLI. A token whose end it cannot parse is
// used until it is refused.
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
