package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

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

// Microsoft returns a source with the credentials of Microsoft Entra ID, for a scope such as
// https://storage.azure.com/.default: a client with a secret, a certificate or the token of a
// workload, a token, the identity of the machine, or the Azure CLI. The variables are the ones of
// package azidentity and of the crate object_store.
func Microsoft(scope string, client *http.Client, secrets *ranged.Secrets) *Source {
	s := newSource(client, secrets)
	s.places = "the AZURE_ variables, the identity of the machine, az login"
	s.advice = "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, " +
		"run az login, or read a public container with anonymous=true"
	// Microsoft's page on tokens of virtual machines asks clients to try for 70 s, because the
	// service is away that long when it is upgraded.
	s.kept.Within = 70 * time.Second
	s.find = func(bool) (ask, error) { return s.findMicrosoft(scope) }
	return s
}

func (s *Source) findMicrosoft(scope string) (ask, error) {
	id, idName := Setting("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID")
	tenant, tenantName := Setting("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID")
	secret, secretName := Setting("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET")
	certificate, certificateName := Setting("AZURE_CLIENT_CERTIFICATE_PATH")
	file, fileName := Setting("AZURE_FEDERATED_TOKEN_FILE")
	token, tokenName := Setting("AZURE_STORAGE_TOKEN")
	options := azcore.ClientOptions{Transport: s.client, Retry: policy.RetryOptions{MaxRetries: -1}} // Kept is patient
	if secret == "" && certificate == "" && file == "" {
		if token == "" {
			return s.findMachine(scope, id, options)
		}
		s.found("token", tokenName)
		return func(context.Context) (string, time.Time, error) { return token, time.Time{}, nil }, nil
	}
	if id == "" || tenant == "" {
		return nil, fmt.Errorf("%s and %s are needed as well", idName, tenantName)
	}
	host, err := authority()
	if err != nil {
		return nil, err
	}
	options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: host}
	var client azcore.TokenCredential
	// The host is trusted, because the environment names it: nobody else is asked about it.
	switch {
	case secret != "":
		s.secrets.Remember(secret)
		s.found("client "+id, secretName)
		client, err = azidentity.NewClientSecretCredential(tenant, id, secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	case certificate != "":
		s.found("client "+id, certificateName)
		client, err = certified509(tenant, id, certificate, options)
	default:
		s.found("client "+id, fileName)
		assertion := func(context.Context) (string, error) { // others replace the file before its token ends
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
		client, err = azidentity.NewClientAssertionCredential(tenant, id, assertion,
			&azidentity.ClientAssertionCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, time.Time, error) {
		t, err := client.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		return t.Token, t.ExpiresOn, err
	}, nil
}

// certified509 returns the credentials of a client with the certificate and the key of a file.
func certified509(tenant, id, file string, options azcore.ClientOptions) (azcore.TokenCredential, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certificates, key, err := azidentity.ParseCertificates(text, []byte(os.Getenv("AZURE_CLIENT_CERTIFICATE_PASSWORD")))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	chain, _ := Setting("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN")
	return azidentity.NewClientCertificateCredential(tenant, id, certificates, key,
		&azidentity.ClientCertificateCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true,
			SendCertificateChain: chain == "1" || strings.EqualFold(chain, "true")})
}

// authority returns where clients ask for tokens.
func authority() (string, error) {
	host, name := Setting("AZURE_AUTHORITY_HOST", "AZURE_STORAGE_AUTHORITY_HOST")
	if host = cmp.Or(host, "https://login.microsoftonline.com"); !strings.Contains(host, "://") {
		host = "https://" + host
	}
	if u, err := url.Parse(host); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s is not a URL with https://; give one like https://login.microsoftonline.com", name)
	}
	return host, nil
}

// findMachine returns the credentials of the machine, or where it has none those of the user of the
// Azure CLI or of the Azure Developer CLI. The one that gives the first token gives all.
func (s *Source) findMachine(scope, id string, options azcore.ClientOptions) (ask, error) {
	own := azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if id != "" {
		own.ID = azidentity.ClientID(id)
	}
	if os.Getenv("IDENTITY_SERVER_THUMBPRINT") != "" { // Service Fabric: the library pins its certificate
		own.Transport = nil
	}
	machine, err := azidentity.NewManagedIdentityCredential(&own)
	if err != nil {
		return nil, err
	}
	cli, err := azidentity.NewAzureCLICredential(nil)
	if err != nil {
		return nil, err
	}
	developer, err := azidentity.NewAzureDeveloperCLICredential(nil)
	if err != nil {
		return nil, err
	}
	address, from := Setting("IDENTITY_ENDPOINT", "MSI_ENDPOINT")
	if address == "" {
		from = imds
	}
	sources := []struct {
		azcore.TokenCredential
		kind, identity, from string
	}{
		{machine, "managed identity by " + from, "managed identity " + id, from},
		{cli, "Azure CLI", "the user of az login", "the Azure CLI"},
		{developer, "Azure Developer CLI", "the user of azd auth login", "the Azure Developer CLI"},
	}
	return func(ctx context.Context) (string, time.Time, error) {
		var none noMachine
		for i, source := range sources {
			asked := policy.TokenRequestOptions{Scopes: []string{scope}}
			var err error
			if source.TokenCredential == machine {
				// With claims, the library keeps no token: it would keep it for all stores, and after a
				// server has refused it. The services of machines are not sent them.
				asked.Claims = "{}"
				if address == "" && len(sources) > 1 {
					err = s.probe(ctx)
				}
			}
			var t azcore.AccessToken
			if err == nil {
				t, err = source.GetToken(ctx, asked)
			}
			if err == nil {
				s.found(source.identity, source.from)
				sources = sources[i : i+1]
				return t.Token, t.ExpiresOn, nil
			}
			if _, failed := errors.AsType[*azidentity.AuthenticationFailedError](err); failed || len(sources) == 1 {
				return "", time.Time{}, err
			}
			line, _, _ := strings.Cut(err.Error(), "\n")
			none = append(none, source.kind+": "+line)
		}
		return "", time.Time{}, none
	}, nil
}

// noMachine is why there is no identity.
type noMachine []string

func (n noMachine) Error() string { return strings.Join(n, "; ") }

// imds is the service for tokens of virtual machines. AZURE_POD_IDENTITY_AUTHORITY_HOST names the
// address of another that speaks as it does.
const imds = "169.254.169.254"

// atOtherHost returns a request to imds as one to the other service, if there is one.
func atOtherHost(r *http.Request) *http.Request {
	host, _ := Setting("AZURE_POD_IDENTITY_AUTHORITY_HOST")
	u, err := url.Parse(host)
	if host == "" || err != nil || r.URL.Host != imds {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = u.Scheme, u.Host, u.Host
	return r
}

// probe returns an error if nothing answers at the address of imds, as elsewhere.
func (s *Source) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, noteKey{}, new(note)), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+imds+"/metadata/identity/oauth2/token", nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request) // not a valid request, so without a token
	if err != nil {
		return ranged.TransportError(err)
	}
	return answer.Body.Close()
}
