package httpstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
)

// partial answers a range with its header and the first n bytes, and then closes the connection.
func partial(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	first, last := rangeOf(r)
	last = min(last, len(data)-1)
	w.Header().Set("ETag", tagOf(data))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
	w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(data[first : first+min(n, last-first+1)])
	_ = http.NewResponseController(w).Flush()
	if n <= last-first {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
}

func rangeOf(r *http.Request) (first, last int) {
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	return first, last
}

// TestResume breaks off every answer after 10,000 bytes: each further request asks for exactly the
// missing bytes.
func TestResume(t *testing.T) {
	data := pattern(1, 64_321)
	s := newServer(t, map[string][]byte{"a": data})
	s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		partial(w, r, data, 10_000)
		return true
	}
	store := open(t, s, quick())
	p := make([]byte, 60_000)
	if err := handle(t, store, "a").ReadAt(t.Context(), p, 4000); err != nil || !bytes.Equal(p, data[4000:64_000]) {
		t.Fatal(err)
	}
	want := []string{}
	for from := 4000; from < 64_000; from += 10_000 {
		want = append(want, fmt.Sprintf("bytes=%d-63999", from))
	}
	if got := s.asked(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("requests %q, want %q", got, want)
	}
	if stats := httpstore.StatsOf(store); stats.Resumes != 5 || stats.Retries != 0 || stats.Bytes != 60_000 {
		t.Fatalf("%+v", stats)
	}
}

// TestResumeReplaced replaces the object before the next request: the read returns ErrChanged, not
// a mixture.
func TestResumeReplaced(t *testing.T) {
	old, changed := pattern(1, 50_000), pattern(2, 50_000)
	s := newServer(t, map[string][]byte{"a": changed})
	s.hook = func(i int, w http.ResponseWriter, r *http.Request) bool {
		if i == 0 {
			partial(w, r, old, 10_000)
		}
		return i == 0
	}
	if err := handle(t, open(t, s, quick()), "a").ReadAt(t.Context(), make([]byte, 50_000), 0); !errors.Is(err, objstore.ErrChanged) {
		t.Fatal(err)
	}
}

// TestParts checks that a large read is sent in parts of at most PartSize that cover it once, in
// spite of faults.
func TestParts(t *testing.T) {
	data := pattern(1, 1_000_003)
	s := newServer(t, map[string][]byte{"a": data})
	s.hook = func(i int, w http.ResponseWriter, r *http.Request) bool {
		switch i % 4 {
		case 1:
			partial(w, r, data, 1234)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			return false
		}
		return true
	}
	opts := quick()
	opts.PartSize, opts.Concurrency = 64<<10, 4
	store := open(t, s, opts)
	p := make([]byte, len(data)-3)
	if err := handle(t, store, "a").ReadAt(t.Context(), p, 2); err != nil || !bytes.Equal(p, data[2:len(data)-1]) {
		t.Fatal(err)
	}
	for _, r := range s.asked() {
		var first, last int
		if _, err := fmt.Sscanf(r, "bytes=%d-%d", &first, &last); err != nil || last-first >= 64<<10 {
			t.Fatalf("asked for %q", r)
		}
	}
	if stats := httpstore.StatsOf(store); stats.Bytes != int64(len(p)) || stats.Throttled == 0 || stats.Resumes == 0 {
		t.Fatalf("%+v", stats)
	}
}

// TestStall checks that an answer that stops in the middle, or never begins, is cancelled and
// resumed.
func TestStall(t *testing.T) {
	data := pattern(1, 40_000)
	s := newServer(t, map[string][]byte{"a": data})
	s.hook = func(i int, w http.ResponseWriter, r *http.Request) bool {
		first, last := rangeOf(r)
		if i > 0 && first > 0 { // the rest of an answer that stopped
			return false
		}
		if i > 0 {
			w.Header().Set("ETag", tagOf(data))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[first : first+15_000])
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		return true
	}
	opts := quick()
	opts.FirstByteTimeout, opts.StallTimeout = 300*time.Millisecond, 300*time.Millisecond
	store := open(t, s, opts)
	p := make([]byte, len(data))
	if err := handle(t, store, "a").ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, data) {
		t.Fatal(err)
	}
	// There may be more on a machine that pauses for a while.
	if stats := httpstore.StatsOf(store); stats.Stalls < 2 || stats.Resumes < 1 {
		t.Fatalf("%+v", stats)
	}
}

// TestTrickle has a server that sends a byte from time to time in every answer: the read ends with
// an error.
func TestTrickle(t *testing.T) {
	data := pattern(1, 100_000)
	s := newServer(t, map[string][]byte{"a": data})
	s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		first, last := rangeOf(r)
		w.Header().Set("ETag", tagOf(data))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
		w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
		w.WriteHeader(http.StatusPartialContent)
		for i := first; i <= last && r.Context().Err() == nil; i++ {
			_, _ = w.Write(data[i : i+1])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
		return true
	}
	opts := quick()
	opts.StallTimeout, opts.MaxElapsed = 100*time.Millisecond, time.Second
	store := open(t, s, opts)
	err := handle(t, store, "a").ReadAt(t.Context(), make([]byte, len(data)), 0)
	if err == nil || !strings.Contains(err.Error(), "without progress") {
		t.Fatal(err)
	}
}

// TestWrongAnswers checks that each is refused at once with an error that names the fault.
func TestWrongAnswers(t *testing.T) {
	data := pattern(1, 10_000)
	for name, c := range map[string]struct {
		header map[string]string
		status int
		body   string
		want   string
	}{
		"whole":        {nil, 200, string(data), "ignores Range"},
		"html":         {map[string]string{"Content-Type": "text/html; charset=utf-8"}, 200, "<html>login</html>", "HTML page"},
		"other range":  {map[string]string{"Content-Range": "bytes 0-99/10000"}, 206, string(data[:100]), "another range"},
		"shorter":      {map[string]string{"Content-Range": "bytes 100-150/10000"}, 206, string(data[100:151]), "another range"},
		"longer":       {map[string]string{"Content-Range": "bytes 100-300/10000"}, 206, string(data[100:301]), "another range"},
		"no range":     {nil, 206, string(data[:100]), "no Content-Range"},
		"nonsense":     {map[string]string{"Content-Range": "bytes x-y/z"}, 206, string(data[:100]), "Content-Range"},
		"overflow":     {map[string]string{"Content-Range": "bytes 100-199/99999999999999999999"}, 206, string(data[:100]), "Content-Range"},
		"unknown size": {map[string]string{"Content-Range": "bytes 100-199/*"}, 206, string(data[:100]), "Content-Range"},
		"compressed":   {map[string]string{"Content-Range": "bytes 100-199/10000", "Content-Encoding": "gzip"}, 206, string(data[:100]), "compresses"},
		"no validator": {map[string]string{"Content-Range": "bytes 100-199/10000", "ETag": ""}, 206, string(data[:100]), "neither a strong ETag"},
		"weak": {map[string]string{"Content-Range": "bytes 100-199/10000", "ETag": `W/"x"`}, 206, string(data[:100]),
			"neither a strong ETag"},
		"401": {nil, 401, "", "401 Unauthorized; give"},
		"403": {nil, 403, "", "403 Forbidden; these"},
		"400": {nil, 400, "", "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("ETag", tagOf(data))
				for key, value := range c.header {
					if value == "" {
						w.Header().Del(key)
					} else {
						w.Header().Set(key, value)
					}
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return true
			}
			p := make([]byte, 100)
			err := handle(t, open(t, s, quick()), "a").ReadAt(t.Context(), p, 100)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			if !bytes.Equal(p, make([]byte, 100)) || len(s.asked()) != 1 {
				t.Fatalf("requests %q, bytes %x", s.asked(), p)
			}
		})
	}
}

// TestOutage has a store that refuses everything: a read gives up after the permitted attempts,
// with the last answer.
func TestOutage(t *testing.T) {
	s := newServer(t, nil)
	s.hook = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	opts := quick()
	opts.MaxAttempts = 7
	store := open(t, s, opts)
	err := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 10), 0)
	if err == nil || !strings.Contains(err.Error(), "given up after 7 attempts") || !strings.Contains(err.Error(), "503") {
		t.Fatal(err)
	}
	if stats := httpstore.StatsOf(store); stats.Requests != 7 || stats.Throttled != 7 || len(s.asked()) != 7 {
		t.Fatalf("%+v", stats)
	}
	// Stat gives up too.
	if _, err := store.Stat(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "given up after 7 attempts") {
		t.Fatal(err)
	}
}

// TestRetryAfter checks that reads wait as long as the server asks, up to a limit, and that the end
// of the context ends the wait.
func TestRetryAfter(t *testing.T) {
	data := pattern(1, 1000)
	s := newServer(t, map[string][]byte{"a": data})
	s.hook = func(i int, w http.ResponseWriter, _ *http.Request) bool {
		if i == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return i == 0
	}
	store := open(t, s, quick())
	if err := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 1000), 0); err != nil {
		t.Fatal(err)
	}
	if stats := httpstore.StatsOf(store); stats.WaitRetry < time.Second {
		t.Fatalf("%+v", stats)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	s.hook = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "25")
		w.WriteHeader(http.StatusServiceUnavailable)
		time.AfterFunc(20*time.Millisecond, cancel)
		return true
	}
	s.mu.Unlock()
	if err := handle(t, store, "a").ReadAt(ctx, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestRedirects checks that ten redirects are followed and no more, and that a loop is reported at
// once. Neither is retried.
func TestRedirects(t *testing.T) {
	data := pattern(1, 1000)
	for name, c := range map[string]struct {
		next     func(step int) int
		requests int
		want     string
	}{
		"ten":    {func(step int) int { return min(step+1, 10) }, 11, ""},
		"loop":   {func(step int) int { return (step + 1) % 3 }, 3, "redirects in a loop, back to "},
		"itself": {func(int) int { return 0 }, 1, "redirects in a loop, back to "},
		"chain":  {func(step int) int { return step + 1 }, 11, "redirects more than 10 times"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, map[string][]byte{"a": data})
			s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				step := 0
				_, _ = fmt.Sscanf(r.URL.Query().Get("step"), "%d", &step)
				if next := c.next(step); next != step || step == 0 {
					u := *r.URL
					u.RawQuery = fmt.Sprintf("step=%d", next)
					if next == 0 {
						u.RawQuery = ""
					}
					http.Redirect(w, r, u.String(), http.StatusFound)
					return true
				}
				return false
			}
			p := make([]byte, len(data))
			err := handle(t, open(t, s, quick()), "a").ReadAt(t.Context(), p, 0)
			switch {
			case c.want == "" && (err != nil || !bytes.Equal(p, data)):
				t.Fatal(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "step=")):
				t.Fatal(err)
			}
			if n := len(s.asked()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// TestSecrets causes every failure with a password, a token and a signature in use: no error or log
// contains them.
func TestSecrets(t *testing.T) {
	const marked = "marked-secret"
	s := newServer(t, nil)
	statuses := []int{401, 403, 404, 412, 416, 400, 500, 200, 302, 0}
	for _, status := range statuses {
		s.mu.Lock()
		s.hook = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			user, password, _ := r.BasicAuth()
			if user != "user" || password != marked || r.URL.Query().Get("sig") != marked || r.Header.Get("X-Token") != marked {
				t.Errorf("the request lacks what authorizes it: %v %v", r.URL, r.Header)
			}
			w.Header().Set("Location", r.URL.RequestURI())
			w.WriteHeader(status)
			fmt.Fprintf(w, "<p>%v %s", r.URL, marked)
			return true
		}
		s.mu.Unlock()
		base := strings.Replace(s.URL, "http://", "http://user:"+marked+"@", 1) + "/data?sig=" + marked
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		opts := quick()
		opts.HTTPClient, opts.MaxAttempts, opts.Header = client, 2, http.Header{"x-token": {marked}}
		store, err := httpstore.New(base, opts)
		if err != nil {
			t.Fatal(err)
		}
		_, statErr := store.Stat(t.Context(), "a")
		readErr := handle(t, store, "a").ReadAt(t.Context(), make([]byte, 10), 5)
		_, createErr := store.Create(t.Context(), "a", objstore.Condition{})
		for i, err := range []error{statErr, readErr, createErr, errors.New(store.String())} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), marked) {
				t.Fatalf("status %d, operation %d: %v", status, i, err)
			}
		}
	}
	if _, err := httpstore.New("ftp://user:"+marked+"@host/x?sig="+marked, quick()); err == nil || strings.Contains(err.Error(), marked) {
		t.Fatal(err)
	}
}
