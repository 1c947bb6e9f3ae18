package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
)

// lost lets the server execute a request and closes the connection instead of answering.
func lost(s *server, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	s.setHook(nil)
	s.ServeHTTP(httptest.NewRecorder(), again)
	panic(http.ErrAbortHandler)
}

// isCommit reports whether a request publishes an object.
func isCommit(r *http.Request) bool {
	probe := strings.Contains(r.URL.Path, ".shardtool-probe-")
	return !probe && (r.Method == http.MethodPut && !r.URL.Query().Has("uploadId") ||
		r.Method == http.MethodPost && r.URL.Query().Has("uploadId"))
}

// TestLostAnswer loses the answer to a commit: the retry fails because the condition no longer
// holds or the upload is gone, and Commit detects that the object is its own.
func TestLostAnswer(t *testing.T) {
	for _, size := range []int{1000, 6 << 20} {
		for _, cond := range []string{"none", "IfNoneMatch", "IfMatch"} {
			t.Run(fmt.Sprintf("%s/size=%d", cond, size), func(t *testing.T) {
				s := newServer(t)
				store := open(t, s.URL, "", quick(s.URL))
				condition := objstore.Condition{IfNoneMatch: cond == "IfNoneMatch"}
				if cond == "IfMatch" {
					old, err := objstore.Put(t.Context(), store, "a", []byte("old"), objstore.Condition{})
					if err != nil {
						t.Fatal(err)
					}
					condition.IfMatch = old.ETag
				}
				s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
					if isCommit(r) {
						lost(s, w, r)
					}
					return false
				})
				data := bytes.Repeat([]byte("x"), size)
				info, err := objstore.Put(t.Context(), store, "a", data, condition)
				if err != nil {
					t.Fatal(err)
				}
				stat, err := store.Stat(t.Context(), "a")
				if err != nil || stat.ETag != info.ETag || stat.Size != int64(size) || info.Size != int64(size) {
					t.Fatalf("%+v, %+v, %v", info, stat, err)
				}
			})
		}
	}
}

// TestLostAnswerOfAnother loses the answer to a commit that put nothing, and another writer commits
// meanwhile.
func TestLostAnswerOfAnother(t *testing.T) {
	s := newServer(t)
	store := open(t, s.URL, "", quick(s.URL))
	other := open(t, s.URL, "", quick(s.URL))
	if err := other.CheckConditional(t.Context()); err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if !isCommit(r) || once.Swap(true) {
			return false
		}
		if _, err := objstore.Put(t.Context(), other, "a", []byte("same size"), objstore.Condition{IfNoneMatch: true}); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	})
	_, err := objstore.Put(t.Context(), store, "a", []byte("size same"), objstore.Condition{IfNoneMatch: true})
	if !errors.Is(err, objstore.ErrExists) {
		t.Fatal(err)
	}
}

// TestConflict answers 409 for a while: the commit is retried. If that never ends, Commit returns
// an error or finds the object.
func TestConflict(t *testing.T) {
	s := newServer(t)
	store := open(t, s.URL, "", quick(s.URL))
	var left atomic.Int64
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !isCommit(r) || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
		return true
	}
	s.setHook(hook)
	left.Store(3)
	for _, size := range []int{10, 6 << 20} {
		if _, err := objstore.Put(t.Context(), store, fmt.Sprint(size), make([]byte, size), objstore.Condition{IfNoneMatch: true}); err != nil {
			t.Fatal(err)
		}
		left.Store(3)
	}
	left.Store(1 << 30)
	_, err := objstore.Put(t.Context(), store, "new", []byte("x"), objstore.Condition{IfNoneMatch: true})
	if err == nil || errors.Is(err, objstore.ErrExists) || !strings.Contains(err.Error(), "another writer is committing") {
		t.Fatal(err)
	}
	if _, err = objstore.Put(t.Context(), store, "10", []byte("x"), objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
		t.Fatal(err)
	}
}

// TestUnconditional checks that a server that ignores conditions is detected before anything is
// published, and that the test object is removed. Unconditional commits still work.
func TestUnconditional(t *testing.T) {
	s := newServer(t)
	s.unconditional = true
	store := open(t, s.URL, "p", quick(s.URL))
	if err := store.CheckConditional(t.Context()); !errors.Is(err, s3.ErrUnconditional) {
		t.Fatal(err)
	}
	for _, cond := range []objstore.Condition{{IfNoneMatch: true}, {IfMatch: "x"}} {
		_, err := objstore.Put(t.Context(), store, "a", []byte("x"), cond)
		if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "nothing was published") {
			t.Fatal(err)
		}
	}
	if len(s.objects) != 0 {
		t.Fatalf("left: %v", s.objects)
	}
	if _, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	good := newServer(t)
	store = open(t, good.URL, "p", quick(good.URL))
	for range 3 {
		if err := store.CheckConditional(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Two races of 8 and of 4 writers, a later writer each, and the parts of the uploads.
	if puts, posts := len(good.requests("PUT")), len(good.requests("POST")); puts != 2*9+2*5 || posts != 2*2*5 || len(good.objects) != 0 || len(good.uploads) != 0 {
		t.Fatalf("probed by %d puts and %d posts, left %v and %v", puts, posts, good.objects, good.uploads)
	}
}

// TestConditionalRace has a server that checks the condition of a put, or of a completion, before
// it holds the lock under which it writes. One writer after the other finds nothing wrong with it.
func TestConditionalRace(t *testing.T) {
	for name, where := range map[string]string{"put": "", "completion": " at the completion of an upload in parts"} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.torn = &pairs{meeting: make(chan struct{}), of: func(r *http.Request) bool { return (r.Method == http.MethodPost) == (name == "completion") }}
			err := open(t, s.URL, "p", quick(s.URL)).CheckConditional(t.Context())
			if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "writers at once win under If-None-Match"+where+", so") {
				t.Fatal(err)
			}
			if len(s.objects) != 0 || len(s.uploads) != 0 {
				t.Fatalf("left: %v and %v", s.objects, s.uploads)
			}
		})
	}
}

// TestProbeVanishes has a server refuse the test object although there is none, as one does that
// still has the first of two equal puts in hand and then gives it up. The server honours
// conditions.
func TestProbeVanishes(t *testing.T) {
	s := newServer(t)
	var left atomic.Int64
	left.Store(1)
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return true
	})
	store := open(t, s.URL, "p", quick(s.URL))
	if err := store.CheckConditional(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.objects) != 0 {
		t.Errorf("left: %v", s.objects)
	}
}

// TestUnconditionalParts has a server that honours the conditions of puts and ignores those of
// completions: it is detected before a multipart upload is published. Small objects still work.
func TestUnconditionalParts(t *testing.T) {
	s := newServer(t)
	s.atCompletion = true
	store := open(t, s.URL, "p", quick(s.URL))
	info, err := objstore.Put(t.Context(), store, "small", []byte("x"), objstore.Condition{IfNoneMatch: true})
	if err != nil || len(s.requests("POST")) != 0 {
		t.Fatalf("%v, asked about parts: %q", err, s.requests("POST"))
	}
	for name, cond := range map[string]objstore.Condition{"large": {IfNoneMatch: true}, "small": {IfMatch: info.ETag}} {
		_, err := objstore.Put(t.Context(), store, name, make([]byte, 6<<20), cond)
		if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "at the completion of an upload in parts") || !strings.Contains(err.Error(), "nothing was published") {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(s.objects) != 1 || len(s.uploads) != 0 || string(s.objects["p/small"].data) != "x" {
		t.Fatalf("left: %d objects, %d uploads", len(s.objects), len(s.uploads))
	}
	if _, err := objstore.Put(t.Context(), store, "large", make([]byte, 6<<20), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := store.CheckConditional(t.Context()); !errors.Is(err, s3.ErrUnconditional) {
		t.Fatal(err)
	}
	odd := newServer(t)
	odd.notModified = true
	err = open(t, odd.URL, "p", quick(odd.URL)).CheckConditional(t.Context())
	if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "with 304") {
		t.Fatal(err)
	}
}

// TestGoogle checks that Google's S3 interface is refused for publishing, without a request.
func TestGoogle(t *testing.T) {
	opts := quick("")
	opts.ReadOptions.MaxAttempts = 1
	for _, endpoint := range []string{"https://storage.googleapis.com", "https://bucket.storage.googleapis.com:443", "https://storage-vpc.p.googleapis.com"} {
		store := openPlain(t, endpoint, opts)
		_, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{IfNoneMatch: true})
		for op, err := range map[string]error{"put": err, "check": store.CheckConditional(t.Context())} {
			if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "nothing was published; use gs://bucket") {
				t.Errorf("%s: %v", op, err)
			}
		}
		if requests := store.Stats().Requests; requests != 0 {
			t.Errorf("%d requests", requests)
		}
	}
}

// TestAbortDropsParts checks that no parts remain of an upload that was aborted, whose context
// ended, or whose part was refused.
func TestAbortDropsParts(t *testing.T) {
	s := newServer(t)
	store := open(t, s.URL, "", quick(s.URL))
	begin := func(ctx context.Context) objstore.Upload {
		upload, err := store.Create(ctx, "a", objstore.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upload.Write(make([]byte, 12<<20)); err != nil {
			t.Fatal(err)
		}
		return upload
	}
	if err := begin(t.Context()).Abort(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	upload := begin(ctx)
	cancel()
	if _, err := upload.Write(make([]byte, 20<<20)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := upload.Commit(t.Context()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	upload = begin(t.Context())
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.URL.Query().Get("partNumber") != ""
		if refused {
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, r, http.StatusForbidden, "AccessDenied")
		}
		return refused
	})
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = upload.Write(make([]byte, 5<<20))
	}
	if err == nil || !strings.Contains(err.Error(), "s3:PutObject") {
		t.Fatal(err)
	}
	if err := upload.Abort(); err != nil {
		t.Fatal(err)
	}
	s.setHook(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uploads) != 0 || len(s.objects) != 0 {
		t.Fatalf("left: %d uploads, %d objects", len(s.uploads), len(s.objects))
	}
}

// TestStalledUpload has a server that accepts a part and never answers: the request is cancelled
// and retried.
func TestStalledUpload(t *testing.T) {
	s := newServer(t)
	opts := quick(s.URL)
	opts.WriteTimeout = 500 * time.Millisecond
	store := open(t, s.URL, "", opts)
	var once atomic.Bool
	s.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || once.Swap(true) {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	})
	if _, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if puts := s.requests("PUT"); len(puts) < 2 {
		t.Fatalf("put by %q", puts)
	}
}

// TestStalledForGood has a server that never answers a put: the upload ends after three attempts.
func TestStalledForGood(t *testing.T) {
	s := newServer(t)
	opts := quick(s.URL)
	opts.WriteTimeout = 200 * time.Millisecond
	s.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		return r.Method == http.MethodPut
	})
	_, err := objstore.Put(t.Context(), open(t, s.URL, "", opts), "a", []byte("x"), objstore.Condition{})
	if puts := s.requests("PUT"); err == nil || !strings.Contains(err.Error(), "no answer for 200ms") || len(puts) != 3 {
		t.Fatalf("%d puts, %v", len(puts), err)
	}
}

// TestHungCommit ends the context of a commit that is never answered: Commit returns, and the parts
// are removed.
func TestHungCommit(t *testing.T) {
	s := newServer(t)
	opts := quick(s.URL)
	opts.WriteTimeout = time.Second
	store := open(t, s.URL, "", opts)
	ctx, cancel := context.WithCancel(t.Context())
	s.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if !isCommit(r) {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
		return true
	})
	if _, err := objstore.Put(ctx, store, "a", make([]byte, 6<<20), objstore.Condition{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uploads) != 0 || len(s.objects) != 0 {
		t.Fatalf("left: %d uploads, %d objects", len(s.uploads), len(s.objects))
	}
}

// TestBusyUpload checks that an upload is retried through an outage, and fails if the outage does
// not end.
func TestBusyUpload(t *testing.T) {
	s := newServer(t)
	var left atomic.Int64
	s.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
		return true
	})
	store := open(t, s.URL, "", quick(s.URL))
	for _, size := range []int{1000, 6 << 20} {
		left.Store(20)
		if _, err := objstore.Put(t.Context(), store, "a", make([]byte, size), objstore.Condition{}); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	left.Store(1 << 40)
	brief := quick(s.URL)
	brief.ReadOptions.MaxElapsed = 2 * time.Second
	_, err := objstore.Put(t.Context(), open(t, s.URL, "", brief), "a", nil, objstore.Condition{})
	if err == nil || !strings.Contains(err.Error(), "SlowDown") || !strings.Contains(err.Error(), "given up after") {
		t.Error(err)
	}
}

// TestSegments checks that parts grow from one segment to the next, and that objects with sizes
// around the ends of segments are complete.
func TestSegments(t *testing.T) {
	const part = 5 << 20
	s := newServer(t)
	store := open(t, s.URL, "", quick(s.URL))
	store.SetSegmentParts(2)
	for _, size := range []int{part - 1, part, 2*part - 1, 2 * part, 2*part + 1, 6*part + 1, 10 * part, 10*part + 5} {
		data := make([]byte, size)
		for i := 0; i < size; i += 4096 {
			data[i] = byte(i >> 12)
			data[min(i+1, size-1)] = byte(i >> 20)
		}
		info, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{})
		if err != nil || info.Size != int64(size) {
			t.Fatalf("%d: %+v, %v", size, info, err)
		}
		s.mu.Lock()
		stored, left := s.objects["a"].data, len(s.uploads)
		s.mu.Unlock()
		if !bytes.Equal(stored, data) || left != 0 {
			t.Fatalf("put %d bytes, stored %d, %d uploads left", size, len(stored), left)
		}
	}
}
