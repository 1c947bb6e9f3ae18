package gs_test

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
	"github.com/shardtool/shardtool/objstore/internal/gs"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
)

// fault spoils the answer that the server gives by serve.
type fault func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder)

var faults = map[string]fault{
	"reset": func(http.ResponseWriter, *http.Request, func() *httptest.ResponseRecorder) {
		panic(http.ErrAbortHandler)
	},
	"lost": func(_ http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
		serve()
		panic(http.ErrAbortHandler)
	},
	"503": func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		gsserver.Refuse(w, http.StatusServiceUnavailable, "backendError", "Backend Error")
	},
	"429": func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "0")
		gsserver.Refuse(w, http.StatusTooManyRequests, "rateLimitExceeded", "The object exceeded the rate limit.")
	},
	"403 rate": func(w http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		gsserver.Refuse(w, http.StatusForbidden, "userRateLimitExceeded", "Rate Limit Exceeded")
	},
	"short": func(w http.ResponseWriter, _ *http.Request, serve func() *httptest.ResponseRecorder) {
		answer := serve()
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		panic(http.ErrAbortHandler)
	},
	"stalled headers": func(_ http.ResponseWriter, r *http.Request, _ func() *httptest.ResponseRecorder) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	},
	"stalled body": func(w http.ResponseWriter, r *http.Request, serve func() *httptest.ResponseRecorder) {
		answer := serve()
		if answer.Body.Len() == 0 { // the client would take the answer for complete
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	},
}

// spoil has the server answer a share of the requests with one of the faults.
func spoil(s *gsserver.Server, share float64, names ...string) {
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
func execute(s *gsserver.Server, r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	s.Serve(answer, r)
	return answer
}

// impatient makes a store give up stalled requests soon.
func impatient() gs.Options {
	opts := quick()
	opts.ReadOptions.FirstByteTimeout, opts.ReadOptions.StallTimeout, opts.WriteTimeout = time.Second, 500*time.Millisecond, time.Second
	return opts
}

// TestStoreThroughFaults runs the suite over a bad network.
func TestStoreThroughFaults(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		s := gsserver.New(t)
		spoil(s, 0.12, "reset", "lost", "503", "429", "403 rate", "short")
		return open(t, s, "p", quick())
	})
}

// TestFaults writes and reads through each fault: the bytes are right.
func TestFaults(t *testing.T) {
	data := pattern(5*chunk + 777)
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			s := gsserver.New(t)
			share := 0.3
			if strings.Contains(name, "stalled") {
				share = 0.04
			}
			spoil(s, share, name)
			store := open(t, s, "", impatient())
			for i := range 4 {
				object := fmt.Sprint("object-", i)
				info, err := objstore.Put(t.Context(), store, object, data, objstore.Condition{IfNoneMatch: i%2 == 0})
				if err != nil || !bytes.Equal(s.Objects[object].Data, data) || info.ETag != fmt.Sprint(s.Objects[object].Generation) {
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

// TestLies reads from servers that answer another request than the one sent.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(w http.ResponseWriter, r *http.Request, data []byte)
		want string
	}{
		"wrong range": {func(w http.ResponseWriter, _ *http.Request, data []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-10/%d", len(data)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[1:11])
		}, "another range"},
		"page": {func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>Please log in")
		}, "the proxy and its login"},
		"whole object": {func(w http.ResponseWriter, _ *http.Request, data []byte) { _, _ = w.Write(data) }, "the server ignores Range"},
		"no generation": {func(w http.ResponseWriter, r *http.Request, data []byte) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}, "the answer has no ETag"},
	} {
		t.Run(name, func(t *testing.T) {
			s := gsserver.New(t)
			data := pattern(1000)
			s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
				c.lie(w, r, data)
				return true
			})
			object, err := open(t, s, "", quick()).Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer object.Close()
			if err := object.ReadAt(t.Context(), make([]byte, 10), 20); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestPortal has a proxy answer everything with its login page and status 200: no operation
// succeeds.
func TestPortal(t *testing.T) {
	s := gsserver.New(t)
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<html>Please log in")
		return true
	})
	for op, err := range operations(t, open(t, s, "", quick())) {
		if err == nil || !strings.Contains(err.Error(), "the proxy and its login") || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestCompressed checks that an object that the server would decompress is refused.
func TestCompressed(t *testing.T) {
	s := gsserver.New(t)
	s.Objects["a"] = &gsserver.Stored{Data: pattern(100), Generation: 7, At: time.Now(), Encoding: "gzip"}
	if _, _, err := objstore.ReadAll(t.Context(), open(t, s, "", quick()), "a", 1000); err == nil || !strings.Contains(err.Error(), "Content-Encoding: gzip") {
		t.Error(err)
	}
}

// TestDamagedOnTheWay alters a byte of an upload: the server refuses it, and it is sent again.
func TestDamagedOnTheWay(t *testing.T) {
	s := gsserver.New(t)
	store := open(t, s, "", quick())
	var left atomic.Int64
	s.Damage = func(data []byte) []byte {
		if len(data) < 900 || left.Add(-1) < 0 {
			return data
		}
		data[len(data)-500] ^= 1
		return data
	}
	left.Store(1)
	small := pattern(5000)
	if _, err := objstore.Put(t.Context(), store, "small", small, objstore.Condition{}); err != nil || !bytes.Equal(s.Objects["small"].Data, small) {
		t.Error(err)
	}
	left.Store(1)
	large := pattern(3 * chunk)
	if _, err := objstore.Put(t.Context(), store, "large", large, objstore.Condition{}); err != nil || !bytes.Equal(s.Objects["large"].Data, large) {
		t.Error(err)
	}
}

// TestLostAnswer loses the answer to a commit: the retry fails because the condition no longer
// holds, and Commit detects that the object is its own.
func TestLostAnswer(t *testing.T) {
	for _, size := range []int{1000, 2*chunk + 5} {
		for _, kind := range []string{"none", "IfNoneMatch", "IfMatch"} {
			t.Run(fmt.Sprintf("%s/size=%d", kind, size), func(t *testing.T) {
				s := gsserver.New(t)
				store := open(t, s, "", quick())
				cond := objstore.Condition{IfNoneMatch: kind == "IfNoneMatch"}
				if kind == "IfMatch" {
					old, err := objstore.Put(t.Context(), store, "a", []byte("old"), objstore.Condition{})
					if err != nil {
						t.Fatal(err)
					}
					cond.IfMatch = old.ETag
				}
				var once atomic.Bool
				s.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
					last := strings.HasSuffix(r.URL.Path, "/compose")
					if (last || size == 1000 && r.Method == http.MethodPost) && !once.Swap(true) {
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
				if err != nil || stat.ETag != info.ETag || stat.Size != int64(size) || info.Size != int64(size) {
					t.Fatalf("%+v, %+v, %v", info, stat, err)
				}
			})
		}
	}
}

// TestAbort checks that no part remains of an upload that was aborted, whose context ended, or
// whose chunk was refused.
func TestAbort(t *testing.T) {
	s := gsserver.New(t)
	store := open(t, s, "", quick())
	begin := func(ctx context.Context) objstore.Upload {
		upload, err := store.Create(ctx, "a", objstore.Condition{})
		if err == nil {
			_, err = upload.Write(make([]byte, 3*chunk))
		}
		if err != nil {
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
	if _, err := upload.Commit(t.Context()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	upload = begin(t.Context())
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPost
		if refused {
			_, _ = io.Copy(io.Discard, r.Body)
			gsserver.Refuse(w, http.StatusForbidden, "forbidden", "no")
		}
		return refused
	})
	if _, err := upload.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "storage.objects.create") {
		t.Fatal(err)
	}
	// A part whose request was cancelled may reach the server after the parts were deleted.
	s.SetHook(nil)
	s.Mu.Lock()
	for _, o := range s.Objects {
		o.At = o.At.Add(-25 * time.Hour)
	}
	s.Mu.Unlock()
	if _, err := objstore.TraitsOf(store).Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.Objects) != 0 {
		t.Fatalf("left: %d objects", len(s.Objects))
	}
}
