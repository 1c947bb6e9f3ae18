package httpstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// down returns a store whose server is not started yet, and the function that starts it.
func down(t *testing.T, log *lines, objects map[string][]byte) (objstore.Store, func()) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	opts := quick()
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	return openAt(t, "http://"+address, &http.Transport{}, opts), func() {
		t.Helper()
		s := unstarted(t, objects)
		s.Listener.Close()
		if s.Listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
}

// waits returns once a store has failed often enough to log that it waits.
func waits(t *testing.T, store objstore.Store, log *lines) {
	t.Helper()
	for !strings.Contains(log.String(), "waiting for the store") {
		if t.Context().Err() != nil {
			t.Fatalf("nothing is logged: %+v", httpstore.StatsOf(store))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestDownAtStart starts the server after its clients, which wait for it. The log names the store
// and the reason, and reports the end.
func TestDownAtStart(t *testing.T) {
	data := pattern(1, 1000)
	for name, use := range map[string]func(ctx context.Context, store objstore.Store) error{
		"read": func(ctx context.Context, store objstore.Store) error {
			got, _, err := objstore.ReadAll(ctx, store, "a", 1000)
			if err == nil && !bytes.Equal(got, data) {
				return errors.New("other bytes")
			}
			return err
		},
		"stat": func(ctx context.Context, store objstore.Store) error {
			_, err := store.Stat(ctx, "a")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			store, start := down(t, &log, map[string][]byte{"a": data})
			done := make(chan error, 1)
			go func() { done <- use(t.Context(), store) }()
			waits(t, store, &log)
			start()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{store.String(), "connection refused", "gives_up_in=", "the store answers again"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %q: %s", want, log.String())
				}
			}
			if n := strings.Count(log.String(), "\n"); n > 10 {
				t.Errorf("%d lines: %s", n, log.String())
			}
		})
	}
}

// TestDownCancel checks that the wait ends with its context.
func TestDownCancel(t *testing.T) {
	var log lines
	store, _ := down(t, &log, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := store.Stat(ctx, "a")
		done <- err
	}()
	waits(t, store, &log)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// failing is a transport whose requests all fail with one error.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// TestNotWaitedFor checks that permanent errors end a read at once, and that temporary ones are
// retried as often as permitted, from the first request on.
func TestNotWaitedFor(t *testing.T) {
	const waited = 9
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, c := range map[string]struct {
		err      error
		requests int64
	}{
		"refused":       {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), waited},
		"unreachable":   {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), waited},
		"name server":   {dial(&net.DNSError{Err: "server misbehaving", Name: "host", IsTemporary: true}), waited},
		"no such host":  {dial(&net.DNSError{Err: "no such host", Name: "host", IsNotFound: true}), 4},
		"invalid port":  {dial(&net.AddrError{Err: "invalid port", Addr: "99999"}), 1},
		"TLS alert":     {&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, 1},
		"TLS trouble":   {&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}, waited},
		"HTTP on https": {errors.New("http: server gave HTTP response to HTTPS client"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := quick()
			opts.MaxAttempts = waited
			opts.HTTPClient = &http.Client{Transport: failing{c.err}}
			store, err := httpstore.New("http://host/data", opts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Stat(t.Context(), "a"); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if n := httpstore.StatsOf(store).Requests; n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// TestProxyRefuses checks that a proxy that refuses a tunnel is not taken for an outage of the
// store.
func TestProxyRefuses(t *testing.T) {
	for status, want := range map[int]string{407: "user and password in HTTPS_PROXY", 403: "NO_PROXY", 502: "given up after"} {
		s := newServer(t, nil)
		s.hook = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			return true
		}
		opts := quick()
		opts.MaxAttempts = 3
		address, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{}
		ranged.Tune(transport, 1)
		transport.Proxy = http.ProxyURL(address)
		_, err = openAt(t, "https://store.invalid", transport, opts).Stat(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
	}
}
