package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	diskcache "github.com/shardtool/shardtool/objstore/cache"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/order"
)

// trip is how long each request takes. Time is that of the test's bubble: it passes only while all
// goroutines wait, so the time that an operation takes counts the requests that wait for one
// another.
const trip = 100 * time.Millisecond

// distant answers the requests of an HTTP client out of a store, without a network.
type distant struct {
	store *mem.Store
	mu    sync.Mutex
	asked map[string]int
	bytes int // of the answers
	down  int // after how many requests the server answers 503 alone; never if 0
}

func (d *distant) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	d.mu.Lock()
	kind := kindOf(name)
	if r.Method != http.MethodGet {
		kind = r.Method + " " + kind
	}
	d.asked[kind]++
	requests := 0
	for _, n := range d.asked {
		requests += n
	}
	down := d.down > 0 && requests > d.down
	d.mu.Unlock()
	select {
	case <-time.After(trip):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	if down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return w.Result(), nil
	}
	data, info, err := objstore.ReadAll(r.Context(), d.store, name, 1<<40)
	if err != nil {
		http.NotFound(w, r)
	} else {
		w.Header().Set("ETag", fmt.Sprintf("%q", info.ETag))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
	d.mu.Lock()
	d.bytes += w.Body.Len()
	d.mu.Unlock()
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// kindOf says what an object is.
func kindOf(name string) string {
	for _, k := range [][2]string{{format.ManifestName, "manifest"}, {"manifest-", "tables"}, {"keys-", "keys"}, {"views/", "label"}, {"view-", "view"}} {
		if strings.HasPrefix(name, k[0]) {
			return k[1]
		}
	}
	return "shard"
}

// counted runs an operation on a store and returns how many requests waited for one another, and
// all requests.
func (d *distant) counted(t *testing.T, cache string, run func(ctx context.Context, store objstore.Store) error) (trips int, asked string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d.asked = map[string]int{}
		far, err := httpstore.New("http://far.example/", httpstore.Options{HTTPClient: &http.Client{Transport: d}})
		if err != nil {
			t.Fatal(err)
		}
		store := objstore.Store(far)
		if cache != "" {
			c, err := diskcache.New(cache, diskcache.Options{Size: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			store = c.Wrap(far)
		}
		began := time.Now()
		if err := run(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		trips = int(time.Since(began) / trip)
		time.Sleep(time.Hour) // memory that is kept for the next stream has a timer of this bubble
	})
	var counts []string
	for kind, n := range d.asked {
		counts = append(counts, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(counts)
	return trips, strings.Join(counts, ", ")
}

// openStream opens a stream and reads a batch of one sample.
func openStream(ctx context.Context, store objstore.Store, o Options) error {
	d, err := Open(ctx, store, o)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.Stream(ctx, StreamOptions{GlobalBatch: 1})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Next(ctx)
	return err
}

// openMixed does the same for a mix of a data set with itself.
func openMixed(ctx context.Context, store objstore.Store) error {
	var sets [2]*Dataset
	var g errgroup.Group
	for i := range sets {
		g.Go(func() (err error) {
			sets[i], err = Open(ctx, store, Options{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m := mix.Mix{Shuffle: true, Tail: order.TailWrap, Epoch: 500, Segments: []mix.Segment{{Weights: []uint64{1, 1}}}}
	for i, d := range sets {
		defer d.Close()
		m.Sources = append(m.Sources, mix.Source{
			Name: fmt.Sprint(i), Digest: format.DigestString(d.Digest()), Units: d.NumSamples(),
			Lanes: 4, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch,
		})
	}
	plan, err := mix.New(m)
	if err != nil {
		return err
	}
	s, err := OpenMix(ctx, Mix{Plan: plan, Sets: sets[:]}, StreamOptions{GlobalBatch: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Next(ctx)
	return err
}

// getKey writes the sample with a key.
func getKey(ctx context.Context, store objstore.Store, key string) error {
	d, err := Open(ctx, store, Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	numbers, err := d.Lookup(ctx, key)
	if err != nil {
		return err
	}
	return d.WriteTar(ctx, numbers[0], io.Discard)
}

// listKeys reads the indexes of all shards.
func listKeys(ctx context.Context, store objstore.Store) error {
	d, err := Open(ctx, store, Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	for _, err := range d.Indexes(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// readOrder reads what the order of a data set needs.
func readOrder(ctx context.Context, store objstore.Store) error {
	d, err := Open(ctx, store, Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.OrderTable(ctx)
	return err
}

// TestRoundTrips counts the requests that wait for one another, and all requests, until the first
// batch or the first result is there. No request is a HEAD, whose kind would begin with that.
func TestRoundTrips(t *testing.T) {
	samples := mixed(300)
	near := build(t, samples, testset.Options{BlockSize: 8 << 10, ShardSize: 30 << 10})
	plain := build(t, samples, testset.Options{BlockSize: 8 << 10, ShardSize: 30 << 10, NoKeys: true})
	many := manyShards(t, 60_000, 4) // in four parts; the first request gets what an order needs of all
	d := open(t, near, Options{})
	view := subsetOf(d, func(i int) bool { return i%2 == 0 })
	file, err := view.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(t, near, names.View(view.ID()), file)
	put(t, near, names.Label("some"), (&viewfile.Label{Format: viewfile.LabelFormat, View: names.View(view.ID())}).Encode())
	opened := func(o Options) func(context.Context, objstore.Store) error {
		return func(ctx context.Context, store objstore.Store) error { return openStream(ctx, store, o) }
	}
	get := func(ctx context.Context, store objstore.Store) error { return getKey(ctx, store, samples[200].Key) }
	for _, c := range []struct {
		name  string
		from  *mem.Store
		cache int // how often the operation ran through the cache before; no cache if negative
		trips int
		asked string
		run   func(context.Context, objstore.Store) error
	}{
		{"data set", near, -1, 3, "manifest 1, tables 1", opened(Options{})},
		{"data set, cache", near, 0, 3, "manifest 1, tables 1", opened(Options{})},
		{"data set, warm cache", near, 1, 2, "manifest 1, tables 1", opened(Options{})},
		{"generation", near, -1, 2, "tables 1", opened(Options{Generation: names.Generation(d.Info().Tables)})},
		{"view", near, -1, 3, "manifest 1, tables 1, view 1", opened(Options{View: view.ID()})},
		{"view by name", near, -1, 3, "label 1, manifest 1, tables 1, view 1", opened(Options{View: "some"})},
		{"mix", near, -1, 3, "manifest 2, tables 2", openMixed},
		{"get", near, -1, 5, "keys 1, manifest 1, shard 2, tables 1", get},
		{"get, no keys table", plain, -1, 4, "manifest 1, shard 17, tables 1", get},
		{"ls", near, -1, 3, "manifest 1, shard 16, tables 1", listKeys},
		{"order of many shards", many, -1, 2, "manifest 1, tables 1", readOrder},
	} {
		t.Run(c.name, func(t *testing.T) {
			far := &distant{store: c.from}
			folder := ""
			if c.cache >= 0 {
				folder = t.TempDir()
			}
			for range c.cache {
				far.counted(t, folder, c.run)
			}
			trips, asked := far.counted(t, folder, c.run)
			// Which requests of a stream are sent first depends on the order in which goroutines run.
			for again := 0; trips > c.trips && folder == "" && again < 4; again++ {
				trips, asked = far.counted(t, folder, c.run)
			}
			if !strings.Contains(c.asked, "shard") { // a stream reads ahead as far as it gets
				asked = regexp.MustCompile(`, shard \d+|shard \d+, `).ReplaceAllString(asked, "")
			}
			if trips != c.trips || asked != c.asked {
				t.Errorf("%d round trips, %s; want %d, %s", trips, asked, c.trips, c.asked)
			}
		})
	}
}

// TestVerifyOutage has a server that stops to answer while 200 shards are verified: that costs one
// wait of a minute and short ones after it, not a minute for each shard, and nothing is called
// damaged.
func TestVerifyOutage(t *testing.T) {
	near := build(t, mixed(1200), testset.Options{BlockSize: 2 << 10, ShardSize: 8 << 10})
	if n := open(t, near, Options{}).NumShards(); n < 200 {
		t.Fatalf("%d shards", n)
	}
	for _, deep := range []bool{false, true} {
		far := &distant{store: near, down: 60}
		var report *check.Report
		trips, _ := far.counted(t, "", func(ctx context.Context, store objstore.Store) (err error) {
			if report, err = check.Verify(ctx, store, check.Options{Deep: deep, Workers: 2}); err == nil {
				return errors.New("no error")
			}
			return nil
		})
		if took := time.Duration(trips) * trip; took < time.Minute || took > 3*time.Minute || report.Damage() > 0 || report.Unread == 0 {
			t.Errorf("deep %v: ended after %v, %d damaged, %d unread", deep, took, report.Damage(), report.Unread)
		}
	}
}
