package proxy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/test/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	return data
}

// rig is a server with one object, a proxy in front of it, and a client that gives up only with the
// test.
type rig struct {
	proxy  *proxy.Proxy
	client *http.Client
	data   []byte
}

func newRig(t *testing.T, opt proxy.Options) *rig {
	t.Helper()
	data := random(1 << 20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			sum := sha256.New()
			_, _ = io.Copy(sum, r.Body)
			fmt.Fprintf(w, "%x", sum.Sum(nil))
			return
		}
		w.Header().Set("X-Host", r.Host)
		http.ServeContent(w, r, "object", time.Unix(1e9, 0), bytes.NewReader(data))
	}))
	t.Cleanup(server.Close)
	p, err := proxy.Start(server.URL, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &rig{p, &http.Client{Transport: transport}, data}
}

// get reads bytes from to to-1 and returns the status, the bytes received, and why they ended
// early.
func (r *rig) get(ctx context.Context, from, to int) (res *http.Response, got []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.proxy.URL+"/bucket/object", nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	res, err = r.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	got, err = io.ReadAll(res.Body)
	return res, got, err
}

func TestPassesOn(t *testing.T) {
	r := newRig(t, proxy.Options{FirstByte: time.Millisecond})
	res, got, err := r.get(t.Context(), 1000, 300_000)
	if err != nil || res.StatusCode != http.StatusPartialContent || !bytes.Equal(got, r.data[1000:300_000]) {
		t.Fatalf("%v, %d bytes, %v", res, len(got), err)
	}
	if want := strings.TrimPrefix(r.proxy.URL, "http://"); res.Header.Get("X-Host") != want {
		t.Errorf("the server saw Host %q, the client sent %q", res.Header.Get("X-Host"), want)
	}
	if res.Header.Get("Content-Range") != "bytes 1000-299999/1048576" {
		t.Errorf("Content-Range %q", res.Header.Get("Content-Range"))
	}
	body := random(700_000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.proxy.URL+"/bucket/new", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	put, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer put.Body.Close()
	if sum, _ := io.ReadAll(put.Body); string(sum) != fmt.Sprintf("%x", sha256.Sum256(body)) {
		t.Errorf("the server had another body")
	}
	counts := r.proxy.Counts()
	if got := counts.Methods["GET"]; got.Requests != 1 || got.Down != 299_000 {
		t.Errorf("GET: %+v", got)
	}
	if got := counts.Methods["PUT"]; got.Requests != 1 || got.Up != 700_000 {
		t.Errorf("PUT: %+v", got)
	}
	if counts.Faults() != 0 || counts.MaxInFlight != 1 {
		t.Errorf("%+v", counts)
	}
}

// TestBodyFaults checks what a client sees of each fault of a body.
func TestBodyFaults(t *testing.T) {
	for name, test := range map[string]struct {
		faults proxy.Faults
		count  func(proxy.Counts) int64
		want   func(error) bool
	}{
		"reset": {proxy.Faults{Reset: 1}, func(c proxy.Counts) int64 { return c.Resets }, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		"short": {proxy.Faults{Short: 1}, func(c proxy.Counts) int64 { return c.Short }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"cut":   {proxy.Faults{Cut: 1}, func(c proxy.Counts) int64 { return c.Cut }, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, proxy.Options{Faults: test.faults, Seed: 3})
			const requests = 10
			for range requests {
				res, got, err := r.get(t.Context(), 0, 500_000)
				if res == nil {
					// A reset may overtake headers that the client has not read yet.
					if !test.want(err) {
						t.Fatal(err)
					}
					continue
				}
				if !test.want(err) || len(got) >= 500_000 || !bytes.Equal(got, r.data[:len(got)]) {
					t.Fatalf("%d bytes, then %v", len(got), err)
				}
				if name == "cut" && res.ContentLength != int64(len(got)) {
					t.Fatalf("Content-Length %d, %d bytes", res.ContentLength, len(got))
				}
			}
			if n := test.count(r.proxy.Counts()); n != requests || r.proxy.Counts().Faults() != requests {
				t.Errorf("%d counted, %d faults", n, r.proxy.Counts().Faults())
			}
		})
	}
}

// TestFlips checks that one bit of each body is flipped, in requests of all lengths.
func TestFlips(t *testing.T) {
	r := newRig(t, proxy.Options{Faults: proxy.Faults{Flip: 1}, Seed: 4})
	for _, n := range []int{1, 1000, 700_000} {
		_, got, err := r.get(t.Context(), 0, n)
		if err != nil || len(got) != n {
			t.Fatalf("%d bytes of %d, %v", len(got), n, err)
		}
		different := 0
		for i := range got {
			different += bits.OnesCount8(got[i] ^ r.data[i])
		}
		if different != 1 {
			t.Errorf("%d bits of %d bytes are others", different, n)
		}
	}
	if n := r.proxy.Counts().Flips; n != 3 {
		t.Errorf("%d flips", n)
	}
}

// TestStalls lets the client give up while the proxy delays the answer.
func TestStalls(t *testing.T) {
	for name, faults := range map[string]proxy.Faults{"headers": {StallHeaders: 1}, "body": {StallBody: 1}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, proxy.Options{Faults: faults})
			stalled := func(n int64) {
				for r.proxy.Counts().Faults() < n {
					time.Sleep(time.Millisecond)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() { stalled(1); cancel() }()
			_, got, err := r.get(ctx, 0, 500_000)
			if !errors.Is(err, context.Canceled) || len(got) >= 500_000 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			// Close ends a stall too.
			ended := make(chan error, 1)
			go func() {
				_, _, err := r.get(t.Context(), 0, 500_000)
				ended <- err
			}()
			stalled(2)
			r.proxy.Close()
			if err := <-ended; err == nil {
				t.Fatal("a stalled request succeeded")
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	r := newRig(t, proxy.Options{Faults: proxy.Faults{Busy: 1}, RetryAfter: "2"})
	res, got, err := r.get(t.Context(), 0, 10)
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "2" || !bytes.Contains(got, []byte("<Code>SlowDown</Code>")) {
		t.Fatalf("%v, %q, %v", res, got, err)
	}
	if err := r.proxy.Set(proxy.Options{Faults: proxy.Faults{HTML: 1}}); err != nil {
		t.Fatal(err)
	}
	res, got, err = r.get(t.Context(), 0, 10)
	if err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || !bytes.Contains(got, []byte("<html>")) {
		t.Fatalf("%v, %q, %v", res, got, err)
	}
	if err := r.proxy.Set(proxy.Options{Faults: proxy.Faults{Lost: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.get(t.Context(), 0, 10); err == nil {
		t.Fatal("a lost answer came")
	}
	if c := r.proxy.Counts(); c.Busy != 1 || c.HTML != 1 || c.Lost == 0 {
		t.Fatalf("%+v", c)
	}
}

// TestDeterministic sends the same requests twice with one seed, and once with another.
func TestDeterministic(t *testing.T) {
	const requests = 200
	run := func(seed uint64) (statuses string) {
		r := newRig(t, proxy.Options{Seed: seed, Faults: proxy.Faults{Busy: 0.2, HTML: 0.1}})
		for range requests {
			res, _, err := r.get(t.Context(), 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			statuses += fmt.Sprint(res.StatusCode, " ")
		}
		if c := r.proxy.Counts(); c.Busy < 20 || c.Busy > 60 || c.HTML < 5 || c.HTML > 40 {
			t.Errorf("of %d requests %d were refused and %d answered with a page", requests, c.Busy, c.HTML)
		}
		return statuses
	}
	first := run(1)
	if run(1) != first {
		t.Error("one seed, two sequences")
	}
	if run(2) == first {
		t.Error("two seeds, one sequence")
	}
}

// TestMatch checks that other requests are unaffected, and that the selected ones are numbered.
func TestMatch(t *testing.T) {
	var mu sync.Mutex
	var numbers []int64
	r := newRig(t, proxy.Options{
		Match:  func(r *http.Request) bool { return strings.HasSuffix(r.Header.Get("Range"), "-9") },
		Faults: proxy.Faults{Busy: 1},
		Before: func(n int64, _ *http.Request) { mu.Lock(); numbers = append(numbers, n); mu.Unlock() },
	})
	for i, want := range []int{503, 206, 503} {
		res, _, err := r.get(t.Context(), i, []int{10, 20, 10}[i])
		if err != nil || res.StatusCode != want {
			t.Fatalf("request %d: %v, %v", i, res, err)
		}
	}
	if fmt.Sprint(numbers) != "[0 1]" {
		t.Errorf("numbers %v", numbers)
	}
}

// TestThrottle compares rates by the bytes received until a moment: a limit holds however slow the
// machine is.
func TestThrottle(t *testing.T) {
	const rate = 2 << 20
	for name, opt := range map[string]proxy.Options{"connection": {PerConn: rate}, "total": {Total: rate}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opt)
			begin := time.Now()
			_, got, err := r.get(t.Context(), 0, 1<<20)
			seconds := time.Since(begin).Seconds()
			if err != nil || !bytes.Equal(got, r.data) {
				t.Fatal(err)
			}
			if most := rate * (seconds + 0.02); float64(len(got)) > most {
				t.Errorf("%d bytes in %.3f s, at most %.0f may come", len(got), seconds, most)
			}
		})
	}
}

// TestUp does the same for the bodies of requests, which a server counts.
func TestUp(t *testing.T) {
	const rate = 2 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}))
	defer server.Close()
	p, err := proxy.Start(server.URL, proxy.Options{Up: rate})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	begin := time.Now()
	res, err := http.Post(p.URL, "application/octet-stream", bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if most := rate * (time.Since(begin).Seconds() + 0.02); err != nil || string(text) != fmt.Sprint(1<<20) || most < 1<<20 {
		t.Errorf("%s bytes, at most %.0f may arrive: %v", text, most, err)
	}
}

func TestOptions(t *testing.T) {
	for _, opt := range []proxy.Options{
		{Faults: proxy.Faults{Reset: 0.6, Busy: 0.6}},
		{Faults: proxy.Faults{Reset: -0.1}},
		{Faults: proxy.Faults{WrongRange: 0.1}},
		{IgnoreRange: true},
		{PerConn: -1},
	} {
		if _, err := proxy.New("http://127.0.0.1:1", opt); err == nil {
			t.Errorf("accepted %+v", opt)
		}
	}
	if _, err := proxy.New("nowhere", proxy.Options{}); err == nil {
		t.Error("accepted a target without a host")
	}
}
