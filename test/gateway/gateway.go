// Package gateway runs versitygw, an S3 server over a directory, as a process for tests, benchmarks
// and demos.
//
// The server is a tool dependency of this module: the go command builds it once and keeps it in its
// build cache. It listens on a free port of the loopback interface with random keys, and ends with
// the process that started it.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Region is the server's region.
const Region = "us-east-1"

// healthPath answers without credentials. Its element is not a legal bucket name.
const healthPath = "/_health"

// Server is a running gateway. Start sets its fields, which must not be changed. All methods are
// safe for concurrent use.
type Server struct {
	// Endpoint is the server's URL, without a path.
	Endpoint string
	// AccessKey and SecretKey belong to the administrator and are valid for this server only.
	AccessKey string
	SecretKey string
	// Region is the constant Region.
	Region string
	// Bucket is a bucket that was empty at the start.
	Bucket string

	binary string
	iamDir string
	pid    int
	kill   context.CancelFunc
	ended  chan struct{} // closed when the process has ended
	err    error         // its result; valid after ended
	log    logBuffer

	closing sync.Once
}

// Start runs a server over an empty directory, which must be on a file system with extended
// attributes. It waits until the server answers and has a bucket. ctx limits the start, not the
// server's life, which Close ends. The working directory must be inside this module, so that the go
// command knows the server's version. flags are added to the flags of the server's directory
// backend.
func Start(ctx context.Context, dir string, flags ...string) (*Server, error) {
	binary, err := build(ctx)
	if err != nil {
		return nil, err
	}
	// Another process may take a free port before the server does: then try another.
	const tries = 5
	for try := 1; ; try++ {
		s, err := start(ctx, binary, dir, flags)
		if err == nil {
			return s, nil
		}
		if try == tries || ctx.Err() != nil || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

// Test runs a server on a temporary directory until the test ends. If the test fails, it logs the
// server's output.
func Test(tb testing.TB) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // building it may come first
	defer cancel()
	s, err := Start(ctx, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("%v", err)
		}
		if tb.Failed() {
			tb.Logf("log of the S3 server:\n%s", s.Log())
		}
	})
	return s
}

// build returns the path of the server's program, which the go command builds if its cache has
// none.
func build(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "versitygw")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gateway: building versitygw (run this inside the module that pins it): %w\n%s", err,
			stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func start(ctx context.Context, binary, dir string, flags []string) (*Server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Endpoint:  "http://" + address,
		AccessKey: "AK" + rand.Text()[:18],
		SecretKey: rand.Text() + rand.Text(),
		Region:    Region,
		Bucket:    "bucket-" + strings.ToLower(rand.Text()[:8]),
		binary:    binary,
		iamDir:    filepath.Join(dir, "iam"),
		ended:     make(chan struct{}),
	}
	data := filepath.Join(dir, "data")
	for _, d := range []string{data, s.iamDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	args := []string{"--port", address, "--region", Region, "--iam-dir", s.iamDir, "--health", healthPath,
		"--keep-alive", "--quiet", "posix"}
	if err := s.run(append(append(args, flags...), data)...); err != nil {
		return nil, err
	}
	err = s.waitReady(ctx)
	if err == nil {
		_, err = s.Client().CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &s.Bucket})
	}
	if err != nil {
		closeErr := s.Close()
		return nil, fmt.Errorf("gateway: versitygw at %s: %w\n%s", address, errors.Join(err, closeErr), s.Log())
	}
	return s, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("gateway: no port on the loopback interface: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// run starts the process. The goroutine that starts it also waits for it, on one thread: if the
// kernel ends a child with its parent, that parent is the thread.
func (s *Server) run(args ...string) error {
	ctx, kill := context.WithCancel(context.Background())
	s.kill = kill
	cmd := exec.CommandContext(ctx, s.binary, args...)
	// Keys are passed in the environment, because every user can see a command line.
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+s.AccessKey, "ROOT_SECRET_ACCESS_KEY="+s.SecretKey)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	started := make(chan error, 1)
	go func() {
		defer close(s.ended)
		defer pinToParent(cmd)()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		s.pid = cmd.Process.Pid
		started <- nil
		s.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		kill()
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// waitReady polls until the server answers, the process ends, or the context ends.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+healthPath, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended at once: %v", s.err)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close stops the server and waits until it has ended. Later calls do nothing. If the server had
// ended before, Close returns an error.
func (s *Server) Close() (err error) {
	s.closing.Do(func() {
		select {
		case <-s.ended:
			err = fmt.Errorf("gateway: versitygw ended by itself: %v", s.err)
		default:
		}
		s.kill()
		<-s.ended
	})
	return err
}

// PID returns the number of the server's process.
func (s *Server) PID() int { return s.pid }

// Log returns the last 256 KiB of the server's output.
func (s *Server) Log() string { return s.log.String() }

// Env returns the environment variables by which AWS programs find the server, and BUCKET for
// scripts.
func (s *Server) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.Endpoint,
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_REGION=" + s.Region,
		"BUCKET=" + s.Bucket,
	}
}

// Client returns the SDK's client for the server, with which the project's stores are compared.
func (s *Server) Client() *s3.Client { return s.ClientAt(s.Endpoint) }

// ClientAt is Client for another address, such as a proxy's.
func (s *Server) ClientAt(endpoint string) *s3.Client {
	return s3.New(s3.Options{
		Region:                     s.Region,
		BaseEndpoint:               &endpoint,
		UsePathStyle:               true,
		Credentials:                credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
}

// AddUser creates an account without permissions, until a bucket's policy grants some.
func (s *Server) AddUser(ctx context.Context, access, secret string) error {
	cmd := exec.CommandContext(ctx, s.binary, "admin", "--endpoint-url", s.Endpoint, "--region", s.Region,
		"create-user", "--access", access, "--secret", secret, "--role", "user")
	cmd.Env = append(os.Environ(), "ADMIN_ACCESS_KEY_ID="+s.AccessKey, "ADMIN_SECRET_ACCESS_KEY="+s.SecretKey,
		"ADMIN_ACCESS_KEY="+s.AccessKey, "ADMIN_SECRET_KEY="+s.SecretKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gateway: adding a user: %w\n%s", err, out)
	}
	return nil
}
