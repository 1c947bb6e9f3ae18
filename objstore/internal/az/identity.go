package az

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/credentials"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// identity is how requests are authorized: by a key, a SAS, a token or not at all.
type identity struct {
	key    []byte
	sas    url.Values
	tokens *credentials.Source
	name   string // what it is, but for tokens
	from   string // where it was found
}

// emulator is the connection string that UseDevelopmentStorage=true stands for
// (https://learn.microsoft.com/azure/storage/common/storage-connect-azurite). The key is public.
const emulator = "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// identify finds the credentials and the endpoint, in the options or in the environment. The
// variables are the ones of the Azure CLI and of the crate object_store.
func (s *Store) identify(client *http.Client) (err error) {
	const inAddress = "the address"
	conn, connName := credentials.Setting("AZURE_STORAGE_CONNECTION_STRING")
	account, _ := credentials.Setting("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
	key, keyName := credentials.Setting("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY")
	sas, sasName := credentials.Setting("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
	endpoint, _ := credentials.Setting("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
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
		s.auth = identity{tokens: credentials.Microsoft("https://storage.azure.com/.default", client, &s.Secrets)}
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
		c["BlobEndpoint"] = cmp.Or(c["DefaultEndpointsProtocol"], "https") + "://" + c["AccountName"] + ".blob." +
			c["EndpointSuffix"]
	}
	return c
}

func (i *identity) anonymous() bool { return i.key == nil && i.sas == nil && i.tokens == nil }

// describe returns who sends the requests, and where that was found.
func (i *identity) describe() (name, from string) {
	if i.tokens != nil {
		return i.tokens.Describe()
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
		"delete version": {"x", "Owner"},
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
		return fmt.Sprintf("the key in %s is not one of the account, or the account refuses this network: check both",
			from)
	case lacks:
		return fmt.Sprintf("%s (%s) lacks a role, or the account refuses this network: ask for Storage Blob Data %s",
			name, from, need[1])
	}
	return fmt.Sprintf("the token of %s (%s) is not accepted: check its tenant, log in again, or renew its secret",
		name, from)
}
