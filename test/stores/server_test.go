package stores_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/gateway"
	"github.com/shardtool/shardtool/test/proxy"
)

func TestMain(m *testing.M) {
	// fake-gcs-server imports a package that starts a goroutine for good.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// server is an S3 server for tests, a process or in this process.
type server struct {
	endpoint       string
	region         string
	access, secret string
	token          string
	newBucket      func(t *testing.T, name string)
}

var buckets atomic.Int64

// bucket creates a bucket and returns its name.
func (s *server) bucket(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	s.newBucket(t, name)
	return name
}

// at returns the same server at another address.
func (s *server) at(endpoint string) *server {
	c := *s
	c.endpoint = endpoint
	return &c
}

// environment sets what the SDK's credential chain reads: this server's keys, and nothing of this
// machine.
func (s *server) environment(t *testing.T) {
	t.Helper()
	none := t.TempDir() + "/none"
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": s.access, "AWS_SECRET_ACCESS_KEY": s.secret, "AWS_SESSION_TOKEN": s.token,
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
		"HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
}

// open opens a store on the server.
func (s *server) open(t *testing.T, bucket, prefix string, opt s3store.Options) objstore.Store {
	t.Helper()
	s.environment(t)
	opt.Endpoint = s.endpoint
	if opt.Region == "" {
		opt.Region = s.region
	}
	store, err := s3store.New(t.Context(), bucket, prefix, opt)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// versity starts a real server that ends with the test.
func versity(t *testing.T) (*server, *gateway.Server) {
	t.Helper()
	g := gateway.Test(t)
	client := g.Client()
	t.Cleanup(func() {
		if h, ok := client.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
			h.CloseIdleConnections()
		}
	})
	return &server{
		endpoint: g.Endpoint, region: g.Region, access: g.AccessKey, secret: g.SecretKey,
		newBucket: func(t *testing.T, name string) {
			t.Helper()
			if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
				t.Fatal(err)
			}
		},
	}, g
}

// inMemory starts gofakes3 in this process.
func inMemory(t *testing.T) *server {
	t.Helper()
	backend := s3mem.New()
	s3 := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	h := httptest.NewUnstartedServer(conditional(backend, s3))
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // it answers some errors twice
	h.Start()
	t.Cleanup(h.Close)
	return &server{
		endpoint: h.URL, region: "us-east-1", access: "access", secret: "secret",
		newBucket: func(t *testing.T, name string) {
			t.Helper()
			if err := backend.CreateBucket(name); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// conditional has the completion of an upload in parts honour If-None-Match, which gofakes3
// ignores, and lets one conditional request at a time in: the store refuses to commit where an
// object could be overwritten.
func conditional(backend gofakes3.Backend, next http.Handler) http.Handler {
	var turn sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && (r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != "") {
			turn.Lock()
			defer turn.Unlock()
		}
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && r.Header.Get("If-None-Match") == "*" {
			bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			if object, err := backend.HeadObject(bucket, key); err == nil {
				object.Contents.Close()
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusPreconditionFailed)
				io.WriteString(w, "<Error><Code>PreconditionFailed</Code><Message>the object exists</Message></Error>")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// faulty puts a proxy in front of a server.
func (s *server) faulty(t *testing.T, opt proxy.Options) (*server, *proxy.Proxy) {
	t.Helper()
	p, err := proxy.Start(s.endpoint, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return s.at(p.URL), p
}

// wantText checks that an error contains each of these phrases, and no secret.
func wantText(t *testing.T, s *server, err error, phrases ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	for _, phrase := range phrases {
		if !strings.Contains(text, phrase) {
			t.Errorf("the error does not say %q: %s", phrase, text)
		}
	}
	for _, secret := range []string{s.secret, s.token, "Signature=", "X-Amz-Signature"} {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("the error tells a secret: %s", text)
		}
	}
}
