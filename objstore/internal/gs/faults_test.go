package gs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
)

// TestNetwork runs the suite of bad networks.
func TestNetwork(t *testing.T) {
	refuse := func(status int, reason, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { gsserver.Refuse(w, status, reason, message) }
	}
	storetest.RunNetwork(t, storetest.Network{
		Open: func(t *testing.T, _ map[string][]byte, o objstore.ReadOptions) (objstore.Store, storetest.Server) {
			s, opts := gsserver.New(t), quick()
			opts.ReadOptions, opts.WriteTimeout = o, o.FirstByteTimeout
			return open(t, s, "p", opts), s
		},
		Part: chunk,
		Busy: map[string]http.HandlerFunc{
			"backendError":          refuse(http.StatusServiceUnavailable, "backendError", "Backend Error"),
			"rateLimitExceeded":     refuse(http.StatusTooManyRequests, "rateLimitExceeded", "The object exceeded the rate limit."),
			"userRateLimitExceeded": refuse(http.StatusForbidden, "userRateLimitExceeded", "Rate Limit Exceeded"),
		},
		Expired: storetest.Refusal{Answer: refuse(http.StatusUnauthorized, "authError", "Invalid Credentials"), Want: "use credentials"},
	})
}

// TestNoGeneration reads from a server that gives objects no generation, so that versions could
// mix.
func TestNoGeneration(t *testing.T) {
	s := gsserver.New(t)
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(pattern(1000)))
		return true
	})
	_, _, err := objstore.ReadAll(t.Context(), open(t, s, "", quick()), "a", 1000)
	if err == nil || !strings.Contains(err.Error(), "the answer has no ETag") {
		t.Error(err)
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
