package az_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
)

// cut sends half of an answer.
func cut(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
}

// stall outlasts the patience of the store, which may have its answer already if that has no body.
func stall(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(2 * time.Second):
	}
}

// faults spoil the answer that the server gives by serve.
var faults = map[string]func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder){
	"reset": func(http.ResponseWriter, *http.Request, func() *httptest.ResponseRecorder) {
		panic(http.ErrAbortHandler)
	},
	"lost": func(_ http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
		serve()
		panic(http.ErrAbortHandler)
	},
	"503": func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		azserver.Refuse(w, http.StatusServiceUnavailable, "ServerBusy", "The server is currently unable to receive requests.")
	},
	"500": func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		azserver.Refuse(w, http.StatusInternalServerError, "OperationTimedOut", "The operation could not be completed within the permitted time.")
	},
	"short": func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
		cut(w, serve())
		panic(http.ErrAbortHandler)
	},
	"stalled headers": func(_ http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		stall(r)
	},
	"stalled body": func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder) {
		cut(w, serve())
		stall(r)
	},
}

// spoil has the server answer a share of the requests with one of the faults.
func spoil(s *azserver.Server, share float64, names ...string) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(5, uint64(len(names))))
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		hit, name := random.Float64() < share, names[random.IntN(len(names))]
		mu.Unlock()
		if hit {
			faults[name](w, r, func() *httptest.ResponseRecorder { return execute(s, r) })
		}
		return hit
	})
}

// execute answers a request without the hook.
func execute(s *azserver.Server, r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	s.Answer(answer, r.Clone(context.Background()))
	return answer
}

// TestStoreThroughFaults runs the suite over a bad network.
func TestStoreThroughFaults(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		s := azserver.New(t)
		spoil(s, 0.12, "reset", "lost", "503", "500", "short")
		return open(t, s, "p", quick())
	})
}

// TestFaults writes and reads through each fault: the bytes are right.
func TestFaults(t *testing.T) {
	data := pattern(5*block + 777)
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			s := azserver.New(t)
			opts := quick()
			opts.ReadOptions.FirstByteTimeout, opts.ReadOptions.StallTimeout, opts.WriteTimeout = time.Second, 500*time.Millisecond, time.Second
			store := open(t, s, "", opts)
			share := 0.3
			if strings.Contains(name, "stalled") {
				share = 0.04
			}
			spoil(s, share, name)
			for i := range 4 {
				object := fmt.Sprint("object-", i)
				info, err := objstore.Put(t.Context(), store, object, data, objstore.Condition{IfNoneMatch: i%2 == 0})
				if err != nil || !bytes.Equal(s.Objects[object].Data, data) || info.ETag != s.Objects[object].ETag {
					t.Fatalf("put: %+v, %v", info, err)
				}
			}
			object, err := store.Open(t.Context(), "object-0")
			if err != nil {
				t.Fatal(err)
			}
			defer object.Close()
			var group errgroup.Group
			for g := range 8 {
				group.Go(func() error {
					random := rand.New(rand.NewPCG(7, uint64(g)))
					for range 10 {
						from := random.IntN(len(data))
						p := make([]byte, 1+random.IntN(len(data)-from))
						if err := object.ReadAt(t.Context(), p, int64(from)); err != nil {
							return err
						}
						if !bytes.Equal(p, data[from:from+len(p)]) {
							return fmt.Errorf("other bytes: %d at %d", len(p), from)
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if stats := store.Stats(); stats.Retries+stats.Resumes+stats.Stalls == 0 {
				t.Errorf("no fault happened: %+v", stats)
			}
		})
	}
}

// TestLies has servers that answer another request than the one sent, or a login page.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(w http.ResponseWriter, data []byte)
		want string
	}{
		"wrong range": {func(w http.ResponseWriter, data []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-10/%d", len(data)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[1:11])
		}, "another range"},
		"page": {func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>Please log in")
		}, "the proxy and its login"},
		"whole object": {func(w http.ResponseWriter, data []byte) { _, _ = w.Write(data) }, "the server ignores Range"},
	} {
		s := azserver.New(t)
		store := open(t, s, "", quick())
		data := pattern(1000)
		s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			c.lie(w, data)
			return true
		})
		object, err := store.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer object.Close()
		if err := object.ReadAt(t.Context(), make([]byte, 10), 20); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if name != "page" {
			continue
		}
		for _, err := range store.List(t.Context(), "") {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
		}
		if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
	}
}

// TestDamagedOnTheWay alters a byte of an upload: the server refuses it, and it is sent again.
func TestDamagedOnTheWay(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "", quick())
	var left atomic.Int64
	s.Damage = func(data []byte) []byte {
		if left.Add(-1) == 0 {
			data[len(data)/2] ^= 1
		}
		return data
	}
	for _, size := range []int{5000, 3 * block} {
		for request := range int64(4) { // a block, or the list
			left.Store(request + 1)
			put(t, store, "a", pattern(size))
			if !bytes.Equal(s.Objects["a"].Data, pattern(size)) {
				t.Errorf("%d bytes, request %d: other bytes", size, request)
			}
		}
	}
	if got := len(s.Requests("PUT")); got != 4+1+16+4 {
		t.Errorf("%d requests", got)
	}
}

// TestLostAnswer loses the answer to a commit: the retry fails because the condition no longer holds
// or the blocks are gone, and Commit detects that the object is its own.
func TestLostAnswer(t *testing.T) {
	for _, size := range []int{1000, 2*block + 5} {
		for _, kind := range []string{"none", "IfNoneMatch", "IfMatch"} {
			t.Run(fmt.Sprintf("%s/size=%d", kind, size), func(t *testing.T) {
				s := azserver.New(t)
				store := open(t, s, "", quick())
				cond := objstore.Condition{IfNoneMatch: kind == "IfNoneMatch"}
				if kind == "IfMatch" {
					cond.IfMatch = put(t, store, "a", []byte("old")).ETag
				}
				var once atomic.Bool
				s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPut && r.URL.Query().Get("comp") != "block" && !once.Swap(true) {
						execute(s, r)
						panic(http.ErrAbortHandler)
					}
					return false
				})
				info, err := objstore.Put(t.Context(), store, "a", pattern(size), cond)
				if err != nil {
					t.Fatal(err)
				}
				stat, err := store.Stat(t.Context(), "a")
				if err != nil || stat.ETag != info.ETag && size > block || stat.Size != int64(size) || info.Size != int64(size) {
					t.Fatalf("%+v, %+v, %v", info, stat, err)
				}
			})
		}
	}
}

// TestAbort checks that nothing is visible of an upload that was aborted, or whose context ended.
func TestAbort(t *testing.T) {
	s := azserver.New(t)
	store := open(t, s, "", quick())
	for _, abort := range []func(objstore.Upload, context.CancelFunc) error{
		func(u objstore.Upload, _ context.CancelFunc) error { return u.Abort() },
		func(u objstore.Upload, cancel context.CancelFunc) error {
			cancel()
			if _, err := u.Commit(t.Context()); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("committed: %w", err)
			}
			return nil
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		upload, err := store.Create(ctx, "a", objstore.Condition{})
		if err == nil {
			_, err = upload.Write(make([]byte, 3*block))
		}
		if err == nil {
			err = abort(upload, cancel)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, store, ""); len(got) != 0 {
		t.Errorf("listed: %q", got)
	}
}
