package s3_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

const (
	keyID  = "AKIDMARKED1"
	secret = "marked-secret-key-7d1"
	token  = "marked-session-token-99"
)

func TestMain(m *testing.M) {
	// The configuration of the machine must not affect the tests.
	for _, variable := range os.Environ() {
		if len(variable) > 4 && variable[:4] == "AWS_" {
			name, _, _ := cut(variable)
			os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

func cut(variable string) (name, value string, ok bool) {
	for i := range variable {
		if variable[i] == '=' {
			return variable[:i], variable[i+1:], true
		}
	}
	return variable, "", false
}

// quick returns options with short pauses and the default number of retries.
func quick(endpoint string) s3.Options {
	return s3.Options{
		Endpoint:       endpoint,
		UploadPartSize: 5 << 20,
		ReadOptions: objstore.ReadOptions{
			BackoffMin:       time.Millisecond,
			BackoffMax:       5 * time.Millisecond,
			FirstByteTimeout: 20 * time.Second,
		},
	}
}

func open(t *testing.T, endpoint, prefix string, opts s3.Options) objstore.Store {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 100},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(client.CloseIdleConnections)
	opts.Endpoint, opts.HTTPClient = endpoint, client
	store, err := s3.New(t.Context(), "bucket", prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore(t *testing.T) {
	for _, prefix := range []string{"", "some/prefix"} {
		if testing.Short() && prefix == "" {
			continue
		}
		t.Run("prefix="+prefix, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) objstore.Store {
				server := s3server.New(t)
				return open(t, server.URL, prefix, quick(server.URL))
			})
		})
	}
}

// TestListAll: the list of every name has those that no store accepts.
func TestListAll(t *testing.T) {
	server := s3server.New(t)
	store := open(t, server.URL, "some/prefix", quick(server.URL))
	names := append(storetest.OddNames(), "a/b", "z")
	for _, name := range names {
		server.Objects["some/prefix/"+name] = s3server.Stored{Data: []byte("x"), ETag: `"1"`}
	}
	storetest.ListAll(t, store, names)
	storetest.ListAll(t, storetest.NewFaulty(store, storetest.Fault{At: -1}), names)
}
