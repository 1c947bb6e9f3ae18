package reshard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/export"
	"github.com/shardtool/shardtool/writer"
)

// trip is how long each request takes. Time is that of the test's bubble, which passes only while
// all goroutines wait, so the time that an operation takes counts the requests that wait for one
// another.
const trip = 100 * time.Millisecond

// far answers the requests of an HTTP client by a server without a network.
type far struct {
	server   *s3server.Server
	mu       sync.Mutex
	requests int
	bytes    int64
}

func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(trip):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	f.bytes += int64(w.Body.Len())
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// open returns the store as another process would.
func (f *far) open() (objstore.Store, error) {
	return s3.New(context.Background(), "bucket", "set", s3.Options{Endpoint: "http://far.example", Anonymous: true, Region: "x",
		HTTPClient: &http.Client{Transport: f}})
}

// TestTrips counts the requests that wait for one another, all requests and bytes of what is done
// with 200 shards in a store whose requests take 100 ms.
func TestTrips(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_CA_BUNDLE", "")
	near := mem.New()
	w, err := writer.New(t.Context(), near, writer.Options{Name: "d", BlockSize: 16 << 10, ShardSize: 77 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8000 {
		err := w.Write(t.Context(), writer.Sample{Key: fmt.Sprintf("%06d", i), Fields: []writer.Field{{Name: "x", Data: noise(i, 1500)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := s3server.New(t)
	server.Page = 1000
	stored := int64(0)
	for info, err := range near.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), near, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		stored += int64(len(data))
		server.Objects["set/"+info.Name] = s3server.Stored{Data: data, ETag: s3server.Tag(data), At: time.Now().Add(-48 * time.Hour)}
	}
	open := func(ctx context.Context, f *far, use func(d *reader.Dataset) error) error {
		store, err := f.open()
		if err != nil {
			return err
		}
		d, err := reader.Open(ctx, store, reader.Options{})
		if err != nil {
			return err
		}
		defer d.Close()
		return use(d)
	}
	estimated := map[int]float64{} // by ranks, how many times all together fetch the data set
	stream := func(ranks, batches int) func(ctx context.Context, f *far) error {
		return func(ctx context.Context, f *far) error {
			var g errgroup.Group
			for rank := range ranks {
				g.Go(func() error {
					return open(ctx, f, func(d *reader.Dataset) error {
						s, err := d.Stream(ctx, reader.StreamOptions{GlobalBatch: 64, Rank: rank, World: ranks, Shuffle: true, Epochs: 1})
						if err != nil {
							return err
						}
						defer s.Close()
						if times, more := s.Fetches(); rank == 0 {
							estimated[ranks] = times
							if want := (times - 1) * float64(d.Info().Bytes); math.Abs(float64(more)-want) > float64(d.Info().Bytes)/50 {
								t.Errorf("%d ranks fetch %d bytes again, want %.0f", ranks, more, want)
							}
						}
						for range batches {
							if _, err := s.Next(ctx); errors.Is(err, io.EOF) {
								return nil
							} else if err != nil {
								return err
							}
						}
						return nil
					})
				})
			}
			return g.Wait()
		}
	}
	for _, c := range []struct {
		name  string
		trips int
		run   func(ctx context.Context, f *far) error
	}{
		{"open", 2, func(ctx context.Context, f *far) error {
			return open(ctx, f, func(*reader.Dataset) error { return nil })
		}},
		{"first batch, 1 rank", 6, stream(1, 1)},
		{"first batch, 16 ranks", 6, stream(16, 1)},
		{"epoch, 1 rank", 25, stream(1, 1e6)},
		{"epoch, 8 ranks", 20, stream(8, 1e6)},
		{"verify", 15, func(ctx context.Context, f *far) error { return checked(ctx, f, check.Options{}) }},
		{"verify, deep", 80, func(ctx context.Context, f *far) error { return checked(ctx, f, check.Options{Deep: true}) }},
		{"all indexes", 20, func(ctx context.Context, f *far) error {
			return open(ctx, f, func(d *reader.Dataset) error {
				for _, err := range d.Indexes(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{"export", 40, func(ctx context.Context, f *far) error {
			return open(ctx, f, func(d *reader.Dataset) error {
				_, err := export.Run(ctx, d, mem.New(), export.Options{Form: export.Tar, Parallel: 8})
				return err
			})
		}},
		{"prune, nothing to do", 10, func(ctx context.Context, f *far) error {
			store, err := f.open()
			if err == nil {
				_, err = writer.Prune(ctx, store, writer.PruneOptions{Keep: 1})
			}
			return err
		}},
		{"prune of 200 leftovers", 110, func(ctx context.Context, f *far) error {
			for name := range f.server.Objects {
				if strings.HasSuffix(name, ".json") {
					delete(f.server.Objects, name)
				}
			}
			store, err := f.open()
			if err != nil {
				return err
			}
			r, err := writer.Prune(ctx, store, writer.PruneOptions{Keep: 1, Grace: -1})
			if err == nil && (len(r.Objects) < 200 || len(f.server.Objects) > 0) {
				err = fmt.Errorf("%d deleted, %d young, %d left, %d there", len(r.Objects), len(r.Young), len(r.Left), len(f.server.Objects))
			}
			return err
		}},
	} {
		f := &far{server: server}
		var trips int
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if err := c.run(t.Context(), f); err != nil {
				t.Error(err)
			}
			trips = int(time.Since(began) / trip)
			time.Sleep(time.Hour) // memory that is kept for the next stream has a timer of this bubble
		})
		t.Logf("%-24s %4d round trips, %5d requests, %.2f of the bytes", c.name, trips, f.requests, float64(f.bytes)/float64(stored))
		if trips > c.trips {
			t.Errorf("%s: %d round trips, %d at most", c.name, trips, c.trips)
		}
		var ranks int
		if n, _ := fmt.Sscanf(c.name, "epoch, %d rank", &ranks); n == 1 {
			if times := float64(f.bytes) / float64(stored); math.Abs(estimated[ranks]/times-1) > 0.1 {
				t.Errorf("%s: data was fetched %.2f times, %.2f were expected", c.name, times, estimated[ranks])
			}
		}
	}
}

func checked(ctx context.Context, f *far, o check.Options) error {
	store, err := f.open()
	if err != nil {
		return err
	}
	o.Workers = 2
	r, err := check.Verify(ctx, store, o)
	if err == nil && !r.OK() {
		err = fmt.Errorf("%+v", r.Faults)
	}
	return err
}

// noise is what no codec makes smaller.
func noise(seed, n int) []byte {
	data := make([]byte, n)
	x := uint64(seed)*2862933555777941757 + 3037000493
	for i := range data {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		data[i] = byte(x >> 32)
	}
	return data
}
