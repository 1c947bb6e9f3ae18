package reader

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// served is the data set of a folder, on a web server that can be down.
func served(t *testing.T, of source, dir string, attempts int) (s source, refused *atomic.Int64, down *atomic.Bool) {
	t.Helper()
	refused, down = new(atomic.Int64), new(atomic.Bool)
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	store, err := httpstore.New(server.URL, httpstore.Options{
		HTTPClient:  server.Client(),
		ReadOptions: objstore.ReadOptions{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, NoHedge: true, MaxAttempts: attempts},
	})
	if err != nil {
		t.Fatal(err)
	}
	s = of
	copied := *of.streamed
	s.streamed = &copied
	s.streamed.Dataset = open(t, store, Options{})
	return s, refused, down
}

// TestMixOutage: a mix waits for a source whose store is down, as one data set does, and reads what
// it would have read. A store that stays down ends it with an error that names the source.
func TestMixOutage(t *testing.T) {
	dir := t.TempDir()
	near, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	in := []source{one(t, "a", "x", mem.New(), 3000), one(t, "b", "x", near, 3000)}
	o := StreamOptions{GlobalBatch: 10, Epochs: 12, Tuning: Tuning{Memory: 1 << 20}}
	x, _ := joined(t, mixOf(1, in, 1, 1), in)
	want := keysOf(t, openMix(t, x, o), nil)

	far, refused, down := served(t, in[1], dir, 0)
	x, _ = joined(t, mixOf(1, in, 1, 1), []source{in[0], far})
	up := make(chan struct{})
	got := keysOf(t, openMix(t, x, o), func(batch int) {
		if batch != 3 {
			return
		}
		down.Store(true)
		go func() { // it is up again once reads have failed many times
			defer close(up)
			for refused.Load() < 20 && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			down.Store(false)
		}()
	})
	<-up
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d samples beside an outage, not the %d without", len(got), len(want))
	}
	if n := refused.Load(); n < 20 {
		t.Errorf("the store failed %d times", n)
	}

	far, _, down = served(t, in[1], dir, 7)
	x, _ = joined(t, mixOf(1, in, 1, 1), []source{in[0], far})
	s := openMix(t, x, o)
	down.Store(true)
	for err = nil; err == nil; {
		_, err = s.Next(t.Context())
	}
	var of *mix.SourceError
	if !errors.As(err, &of) || of.Source != "b" || !strings.Contains(err.Error(), "given up after 7 attempts") {
		t.Errorf("a store that stays down: %v", err)
	}
}

// keysOf reads a stream to its end. after runs after each batch.
func keysOf(t *testing.T, s *Stream, after func(batch int)) (keys []string) {
	t.Helper()
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Samples {
			keys = append(keys, string(b.Samples[i].Key))
		}
		if n++; after != nil {
			after(n)
		}
	}
	return keys
}
