package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// isCommit reports whether a request publishes an object.
func isCommit(r *http.Request) bool {
	probe := strings.Contains(r.URL.Path, ".shardtool-probe-")
	return !probe && (r.Method == http.MethodPut && !r.URL.Query().Has("uploadId") ||
		r.Method == http.MethodPost && r.URL.Query().Has("uploadId"))
}

// TestLostAnswerOfAnother loses the answer to a commit that put nothing, and another writer commits
// meanwhile.
func TestLostAnswerOfAnother(t *testing.T) {
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	other := open(t, s.URL, "", quick(s.URL))
	if err := s3.CheckConditional(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
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
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	var left atomic.Int64
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		if !isCommit(r) || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s3server.Refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
		return true
	}
	s.SetHook(hook)
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
	s := s3server.New(t)
	s.Unconditional = true
	store := open(t, s.URL, "p", quick(s.URL))
	if err := s3.CheckConditional(t.Context(), store); !errors.Is(err, s3.ErrUnconditional) {
		t.Fatal(err)
	}
	for _, cond := range []objstore.Condition{{IfNoneMatch: true}, {IfMatch: "x"}} {
		_, err := objstore.Put(t.Context(), store, "a", []byte("x"), cond)
		if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "nothing was published") {
			t.Fatal(err)
		}
	}
	if len(s.Objects) != 0 {
		t.Fatalf("left: %v", s.Objects)
	}
	if _, err := objstore.Put(t.Context(), store, "a", []byte("x"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	good := s3server.New(t)
	store = open(t, good.URL, "p", quick(good.URL))
	for range 3 {
		if err := s3.CheckConditional(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	}
	// Two races of 8 and of 4 writers, a later writer each, and the parts of the uploads.
	if puts, posts := len(good.Requests("PUT")), len(good.Requests("POST")); puts != 2*9+2*5 || posts != 2*2*5 || len(good.Objects) != 0 || len(good.Uploads) != 0 {
		t.Fatalf("probed by %d puts and %d posts, left %v and %v", puts, posts, good.Objects, good.Uploads)
	}
}

// TestConditionalRace has a server that checks the condition of a put, or of a completion, before
// it holds the lock under which it writes. One writer after the other finds nothing wrong with it.
func TestConditionalRace(t *testing.T) {
	for name, where := range map[string]string{"put": "", "completion": " at the completion of an upload in parts"} {
		t.Run(name, func(t *testing.T) {
			s := s3server.New(t)
			s.Torn = &s3server.Pairs{Meeting: make(chan struct{}), Of: func(r *http.Request) bool { return (r.Method == http.MethodPost) == (name == "completion") }}
			err := s3.CheckConditional(t.Context(), open(t, s.URL, "p", quick(s.URL)))
			if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "writers at once win under If-None-Match"+where+", so") {
				t.Fatal(err)
			}
			if len(s.Objects) != 0 || len(s.Uploads) != 0 {
				t.Fatalf("left: %v and %v", s.Objects, s.Uploads)
			}
		})
	}
}

// TestProbeVanishes has a server refuse the test object although there is none, as one does that
// still has the first of two equal puts in hand and then gives it up. The server honours
// conditions.
func TestProbeVanishes(t *testing.T) {
	s := s3server.New(t)
	var left atomic.Int64
	left.Store(1)
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s3server.Refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return true
	})
	store := open(t, s.URL, "p", quick(s.URL))
	if err := s3.CheckConditional(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if len(s.Objects) != 0 {
		t.Errorf("left: %v", s.Objects)
	}
}

// TestUnconditionalParts has a server that honours the conditions of puts and ignores those of
// completions: it is detected before a multipart upload is published. Small objects still work.
func TestUnconditionalParts(t *testing.T) {
	s := s3server.New(t)
	s.AtCompletion = true
	store := open(t, s.URL, "p", quick(s.URL))
	info, err := objstore.Put(t.Context(), store, "small", []byte("x"), objstore.Condition{IfNoneMatch: true})
	if err != nil || len(s.Requests("POST")) != 0 {
		t.Fatalf("%v, asked about parts: %q", err, s.Requests("POST"))
	}
	for name, cond := range map[string]objstore.Condition{"large": {IfNoneMatch: true}, "small": {IfMatch: info.ETag}} {
		_, err := objstore.Put(t.Context(), store, name, make([]byte, 6<<20), cond)
		if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "at the completion of an upload in parts") || !strings.Contains(err.Error(), "nothing was published") {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(s.Objects) != 1 || len(s.Uploads) != 0 || string(s.Objects["p/small"].Data) != "x" {
		t.Fatalf("left: %d objects, %d uploads", len(s.Objects), len(s.Uploads))
	}
	if _, err := objstore.Put(t.Context(), store, "large", make([]byte, 6<<20), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := s3.CheckConditional(t.Context(), store); !errors.Is(err, s3.ErrUnconditional) {
		t.Fatal(err)
	}
	odd := s3server.New(t)
	odd.NotModified = true
	err = s3.CheckConditional(t.Context(), open(t, odd.URL, "p", quick(odd.URL)))
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
		for op, err := range map[string]error{"put": err, "check": s3.CheckConditional(t.Context(), store)} {
			if !errors.Is(err, s3.ErrUnconditional) || !strings.Contains(err.Error(), "nothing was published; use gs://bucket") {
				t.Errorf("%s: %v", op, err)
			}
		}
		if requests := s3.StatsOf(store).Requests; requests != 0 {
			t.Errorf("%d requests", requests)
		}
	}
}

// TestAbortDropsParts checks that no parts remain of an upload that was aborted, whose context
// ended, or whose part was refused.
func TestAbortDropsParts(t *testing.T) {
	s := s3server.New(t)
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
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.URL.Query().Get("partNumber") != ""
		if refused {
			_, _ = io.Copy(io.Discard, r.Body)
			s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
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
	s.SetHook(nil)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.Uploads) != 0 || len(s.Objects) != 0 {
		t.Fatalf("left: %d uploads, %d objects", len(s.Uploads), len(s.Objects))
	}
}

// TestHungCommit ends the context of a commit that is never answered: Commit returns, and the parts
// are removed.
func TestHungCommit(t *testing.T) {
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	ctx, cancel := context.WithCancel(t.Context())
	s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
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
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.Uploads) != 0 || len(s.Objects) != 0 {
		t.Fatalf("left: %d uploads, %d objects", len(s.Uploads), len(s.Objects))
	}
}

// TestBusyUpload checks that an upload is retried through an outage, and fails if the outage does
// not end.
func TestBusyUpload(t *testing.T) {
	s := s3server.New(t)
	var left atomic.Int64
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead || left.Add(-1) < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s3server.Refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
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
	s := s3server.New(t)
	store := open(t, s.URL, "", quick(s.URL))
	s3.SetSegmentParts(store, 2)
	for _, size := range []int{part - 1, part, 2*part - 1, 2 * part, 2*part + 1, 6*part + 1, 10 * part, 10*part + 5} {
		if testing.Short() && size >= 10*part {
			continue // a third segment: goroutines do in it what they do in the second
		}
		data := make([]byte, size)
		for i := 0; i < size; i += 4096 {
			data[i] = byte(i >> 12)
			data[min(i+1, size-1)] = byte(i >> 20)
		}
		info, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{})
		if err != nil || info.Size != int64(size) {
			t.Fatalf("%d: %+v, %v", size, info, err)
		}
		s.Mu.Lock()
		stored, left := s.Objects["a"].Data, len(s.Uploads)
		s.Mu.Unlock()
		if !bytes.Equal(stored, data) || left != 0 {
			t.Fatalf("put %d bytes, stored %d, %d uploads left", size, len(stored), left)
		}
	}
}
