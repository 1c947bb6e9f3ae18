package httpstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server serves objects with strong ETags. hook sees each request first, with its number from 0 on,
// and may answer it by returning true.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	objects map[string][]byte
	ranges  []string // of all requests
	hook    func(i int, w http.ResponseWriter, r *http.Request) bool
	bare    bool // no ETag
	dated   time.Time
}

func newServer(t *testing.T, objects map[string][]byte) *server {
	s := unstarted(t, objects)
	s.Start()
	return s
}

// unstarted returns a server that is not started yet. The test closes it at its end.
func unstarted(t *testing.T, objects map[string][]byte) *server {
	s := &server{objects: objects, dated: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	i := len(s.ranges)
	s.ranges = append(s.ranges, r.Header.Get("Range"))
	hook := s.hook
	data, ok := s.objects[strings.TrimPrefix(r.URL.Path, "/data/")]
	dated, bare := s.dated, s.bare
	s.mu.Unlock()
	if hook != nil && hook(i, w, r) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	if !bare {
		w.Header().Set("ETag", tagOf(data))
	}
	http.ServeContent(w, r, "x.bin", dated, bytes.NewReader(data))
}

func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ranges...)
}

func tagOf(data []byte) string { return fmt.Sprintf(`"%x"`, sha256.Sum256(data)) }

// quick returns options with short retries; timeouts are long, for a busy machine.
func quick() httpstore.Options {
	return httpstore.Options{ReadOptions: objstore.ReadOptions{
		BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond,
		FirstByteTimeout: 30 * time.Second, StallTimeout: 30 * time.Second, NoHedge: true,
	}}
}

func open(t *testing.T, s *server, opts httpstore.Options) objstore.Store {
	t.Helper()
	return openAt(t, s.URL, &http.Transport{}, opts)
}

// openAt opens the store at a server's address, with its own transport.
func openAt(t *testing.T, address string, transport *http.Transport, opts httpstore.Options) objstore.Store {
	t.Helper()
	transport.MaxIdleConnsPerHost = 100
	client := &http.Client{Transport: transport}
	t.Cleanup(client.CloseIdleConnections)
	opts.HTTPClient = client
	store, err := httpstore.New(address+"/data/", opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func handle(t *testing.T, store objstore.Store, name string) objstore.Object {
	t.Helper()
	object, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { object.Close() })
	return object
}

func pattern(seed byte, size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{seed})
	_, _ = source.Read(data)
	return data
}

func TestStore(t *testing.T) {
	for _, bare := range []bool{false, true} {
		t.Run(fmt.Sprintf("bare=%v", bare), func(t *testing.T) {
			storetest.RunRead(t, func(t *testing.T, objects map[string][]byte) objstore.Store {
				s := newServer(t, objects)
				s.bare = bare
				return open(t, s, quick())
			})
		})
	}
}

// TestReadOnly checks that writes and lists are refused before any request is sent.
func TestReadOnly(t *testing.T) {
	s := newServer(t, nil)
	store := open(t, s, quick())
	if _, err := store.Create(t.Context(), "x", objstore.Condition{}); !errors.Is(err, objstore.ErrReadOnly) {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "x"); !errors.Is(err, objstore.ErrReadOnly) {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "../x"); !errors.Is(err, objstore.ErrName) {
		t.Fatal(err)
	}
	steps := 0
	for _, err := range store.List(t.Context(), "") {
		steps++
		if !errors.Is(err, objstore.ErrNoList) {
			t.Fatal(err)
		}
	}
	if steps != 1 || len(s.asked()) != 0 {
		t.Fatalf("%d steps, requests %q", steps, s.asked())
	}
}

// TestOneRequest checks that Open sends nothing, and that the first read returns size and ETag too.
func TestOneRequest(t *testing.T) {
	data := pattern(1, 100_000)
	s := newServer(t, map[string][]byte{"a": data})
	object := handle(t, open(t, s, quick()), "a")
	p := make([]byte, 1000)
	if err := object.ReadAt(t.Context(), p, 500); err != nil || !bytes.Equal(p, data[500:1500]) {
		t.Fatal(err)
	}
	info, err := object.Info(t.Context())
	if err != nil || info.Size != 100_000 || info.ETag != tagOf(data) || !info.ModTime.Equal(s.dated) {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := object.ReadAt(t.Context(), p, 99_999); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if got := s.asked(); len(got) != 1 || got[0] != "bytes=500-1499" {
		t.Fatalf("requests %q", got)
	}
}

// TestHeadRefused has a server that does not answer HEAD: it gets a GET of one byte.
func TestHeadRefused(t *testing.T) {
	s := newServer(t, map[string][]byte{"a": pattern(1, 777), "empty": {}})
	s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodHead
	}
	store := open(t, s, quick())
	for name, size := range map[string]int64{"a": 777, "empty": 0} {
		if info, err := store.Stat(t.Context(), name); err != nil || info.Size != size {
			t.Fatalf("%s: %+v, %v", name, info, err)
		}
	}
	if _, err := store.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestReplaced checks that a replaced object is ErrChanged, detected by ETag or by date, and that
// none of its bytes reaches the caller.
func TestReplaced(t *testing.T) {
	for _, bare := range []bool{false, true} {
		old, changed := pattern(1, 50_000), pattern(2, 50_000)
		s := newServer(t, map[string][]byte{"a": old})
		s.bare = bare
		object := handle(t, open(t, s, quick()), "a")
		p := make([]byte, 100)
		if err := object.ReadAt(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.objects["a"], s.dated = changed, s.dated.Add(time.Hour)
		s.mu.Unlock()
		clear(p)
		if err := object.ReadAt(t.Context(), p, 200); !errors.Is(err, objstore.ErrChanged) {
			t.Fatalf("bare=%v: %v", bare, err)
		}
		if !bytes.Equal(p, make([]byte, 100)) {
			t.Fatal("bytes of the other version")
		}
	}
}

// TestReuse checks that consecutive reads share one connection, including reads that end at the
// last byte of a body.
func TestReuse(t *testing.T) {
	data := pattern(1, 300_000)
	s := newServer(t, map[string][]byte{"a": data})
	var mu sync.Mutex
	connections := 0
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			connections++
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	opts := quick()
	opts.HTTPClient = client
	store, err := httpstore.New(s.URL+"/data", opts)
	if err != nil {
		t.Fatal(err)
	}
	object := handle(t, store, "a")
	for _, n := range []int{1, 511, 512, 513, 4096, 70_000, 300_000} {
		for range 3 {
			if err := object.ReadAt(t.Context(), make([]byte, n), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// There is one more if a read began before the connection was back in the pool.
	if connections > 3 {
		t.Fatalf("%d connections for 21 reads", connections)
	}
}
