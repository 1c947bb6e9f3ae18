package stores_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/test/proxy"
)

var azuriteKey = base64.StdEncoding.EncodeToString([]byte("a key for tests"))

// azurite starts Azurite, which SHARDTOOL_AZURITE names, and returns its URL. See make
// test-azurite.
func azurite(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SHARDTOOL_AZURITE")
	if program == "" {
		t.Skip("SHARDTOOL_AZURITE does not name azurite-blob: make test-azurite installs it, with npm")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	command := exec.Command(program, "--inMemoryPersistence", "--silent", "--disableTelemetry", "--blobPort", port)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "AZURITE_ACCOUNTS=acct:"+azuriteKey)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	t.Setenv("AZURE_STORAGE_ACCOUNT_KEY", azuriteKey)
	for range 600 {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return "http://127.0.0.1:" + port
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("Azurite does not answer")
	return ""
}

// openAzurite opens a store in a container of its own, through an endpoint.
func openAzurite(t *testing.T, server, endpoint, prefix string) objstore.Store {
	t.Helper()
	container := fmt.Sprintf("box-%d", buckets.Add(1))
	request, err := http.NewRequest(http.MethodPut, server+"/acct/"+container+"?restype=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	key, _ := base64.StdEncoding.DecodeString(azuriteKey)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:%s\nx-ms-version:2021-12-02\n/acct/acct/%s\nrestype:container", date, container)
	request.Header = http.Header{"X-Ms-Date": {date}, "X-Ms-Version": {"2021-12-02"},
		"Authorization": {"SharedKey acct:" + base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return openContainer(t, endpoint, container, prefix)
}

func openContainer(t *testing.T, endpoint, container, prefix string) objstore.Store {
	t.Helper()
	store, err := address.Open(t.Context(), "az://acct/"+container+"/"+prefix+"?endpoint="+url.QueryEscape(endpoint), address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestAzurite(t *testing.T) {
	server := azurite(t)
	storetest.Run(t, func(t *testing.T) objstore.Store { return openAzurite(t, server, server, "some/prefix") })
}

// TestAzuriteFaults runs the suite with faults of the network in all requests.
func TestAzuriteFaults(t *testing.T) {
	server := azurite(t)
	p, err := proxy.Start(server, proxy.Options{Seed: 15, Faults: mixed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	storetest.Run(t, func(t *testing.T) objstore.Store { return openAzurite(t, server, p.URL, "p") })
}

// TestAzuriteBlocksLeft creates a small object where an upload has left blocks.
func TestAzuriteBlocksLeft(t *testing.T) {
	server := azurite(t)
	store := openAzurite(t, server, server, "")
	for _, size := range []int{0, 5} {
		name, create := fmt.Sprint("object-", size), objstore.Condition{IfNoneMatch: true}
		upload, err := store.Create(t.Context(), name, create)
		if err == nil {
			_, err = upload.Write(make([]byte, 9<<20))
		}
		if err == nil {
			time.Sleep(time.Second) // until a block has been sent
			err = upload.Abort()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objstore.Put(t.Context(), store, name, make([]byte, size), create); err != nil {
			t.Error(err)
		}
	}
}

func TestAzuriteWriters(t *testing.T) {
	server := azurite(t)
	storetest.RunWriters(t, 8<<20, openAzurite(t, server, server, ""))
}
