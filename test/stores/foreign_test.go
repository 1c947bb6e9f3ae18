package stores_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shardtool/shardtool/format"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/test/proxy"
)

// with returns a server whose buckets are created by requests.
func (s *server) with(t *testing.T) *server {
	client := s.sdk(t)
	s.newBucket = func(t *testing.T, name string) {
		t.Helper()
		if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// moto starts moto's server, if it is installed (pip install 'moto[server,s3]').
func moto(t *testing.T) *server {
	t.Helper()
	program, err := exec.LookPath("moto_server")
	if err != nil {
		t.Skip("moto_server is not installed: pip install 'moto[server,s3]'")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	cmd := exec.CommandContext(t.Context(), program, "-H", "127.0.0.1", "-p", portOf(address))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &server{endpoint: "http://" + address.String(), region: "us-east-1", access: "access", secret: "secret"}
	for !answers(t.Context(), s.endpoint) {
		if t.Context().Err() != nil {
			t.Fatal("moto_server does not answer")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return s.with(t)
}

func portOf(address *net.TCPAddr) string {
	_, port, _ := net.SplitHostPort(address.String())
	return port
}

func answers(ctx context.Context, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return true
}

// other returns a server that is already running: SHARDTOOL_TEST_S3 is its URL, AWS_ACCESS_KEY_ID
// and AWS_SECRET_ACCESS_KEY are its keys.
func other(t *testing.T) *server {
	t.Helper()
	endpoint := os.Getenv("SHARDTOOL_TEST_S3")
	if endpoint == "" {
		t.Skip("SHARDTOOL_TEST_S3 names no server")
	}
	s := &server{endpoint: endpoint, region: "us-east-1", access: os.Getenv("AWS_ACCESS_KEY_ID"), secret: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	through, _ := s.faulty(t, proxy.Options{}) // it closes connections that the server would keep
	return through.with(t)
}

// exercise writes, verifies and compares. Names and lists of other servers differ too much from
// S3's for the entire suite.
func exercise(t *testing.T, s *server, wrong ...string) (compared []string) {
	t.Helper()
	compared = compares(t, s, wrong...)
	t.Logf("compared: %q", compared)
	sendsParts(t, s)
	store := s.open(t, s.bucket(t), "packed", s3store.Options{})
	packFiles(t, store)
	report, err := check.Verify(t.Context(), store, check.Options{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := store.Delete(t.Context(), format.ManifestName); err != nil {
		t.Fatal(err)
	}
	return compared
}

func TestMoto(t *testing.T) {
	// Without a library of AWS its CRC32C is a CRC32.
	expectCompared(t, exercise(t, moto(t), "parts, CRC32C"), "put", "put, several ranges", "put, streamed", "parts", "parts, CRC32", "parts, SHA256 of each")
}

func TestOther(t *testing.T) {
	exercise(t, other(t))
}
