package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// network is a simulated way to a store.
type network struct {
	name       string
	firstByte  time.Duration
	connection float64 // bytes per second of one request
	total      float64 // of all requests
	most       int     // requests that the store answers at a time; more are asked for less load
}

var networks = []network{
	{"near", 5 * time.Millisecond, 90e6, 400e6, 0},
	{"bench", 30 * time.Millisecond, 200e6, 200e6, 0},
	{"region", 80 * time.Millisecond, 40e6, 300e6, 0},
	{"far", 250 * time.Millisecond, 10e6, 150e6, 0},
	{"narrow", 60 * time.Millisecond, 10e6, 25e6, 0},
	{"wide", 250 * time.Millisecond, 40e6, 1000e6, 0},
	{"quota", 60 * time.Millisecond, 40e6, 300e6, 12},
}

// networked is a store behind a network. It sends 64 requests, and up to 256 where it is asked to.
type networked struct {
	objstore.Store
	of network

	mu     sync.Mutex
	free   time.Time // when all that was asked for so far has come
	inside int
}

func (s *networked) Traits() objstore.Traits {
	return objstore.Traits{Requests: 64, MostRequests: 256, Reserve: func(int) func() { return func() {} }}
}

func (s *networked) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &networkObject{o, s}, err
}

type networkObject struct {
	objstore.Object
	s *networked
}

func (o *networkObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	s, pause := o.s, 50*time.Millisecond
	for s.enter() { // refused: it pauses and tries again
		objstore.Trace(ctx, objstore.PhasePause, 1)
		objstore.Trace(ctx, objstore.PhaseThrottled, 1)
		time.Sleep(pause)
		objstore.Trace(ctx, objstore.PhaseThrottled, -1)
		objstore.Trace(ctx, objstore.PhasePause, -1)
		pause = min(2*pause, time.Second)
	}
	took := s.of.firstByte + seconds(float64(len(p))/s.of.connection)
	s.mu.Lock()
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(seconds(float64(len(p)) / s.of.total))
	took = max(took, s.free.Sub(now)+s.of.firstByte)
	s.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.inside--
	s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return o.Object.ReadAt(ctx, p, off)
}

// enter begins a request; true: the store asks for less load.
func (s *networked) enter() (refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of.most > 0 && s.inside >= s.of.most {
		return true
	}
	s.inside++
	return false
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// BenchmarkTuned streams over simulated networks, to a consumer that only takes batches and to one
// with a step: autotuned, with the defaults fixed, and with fixed requests. One iteration is a
// stream from its start, so that it has what the tuner needs to find its settings.
//
//	go test -run '^$' -bench Tuned -benchtime 3x ./reader
func BenchmarkTuned(b *testing.B) {
	store := mem.New()
	var samples []testset.Sample
	random := rand.NewChaCha8([32]byte{3})
	for i := range 6000 {
		data := make([]byte, 48<<10)
		_, _ = random.Read(data)
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%06d", i), Fields: []testset.Field{{Name: "bin", Data: data}}})
	}
	newStreamed(b, store, samples, testset.Options{BlockSize: 1 << 20, ShardSize: 64 << 20, Raw: true})
	for _, n := range networks {
		for _, step := range []time.Duration{0, 50 * time.Millisecond} {
			for _, c := range []struct {
				name string
				Tuning
			}{
				{"autotuned", Tuning{}}, {"defaults", Tuning{NoAutotune: true}},
				{"requests=16", Tuning{NoAutotune: true, Requests: 16}}, {"requests=32", Tuning{NoAutotune: true, Requests: 32}}, {"requests=256", Tuning{NoAutotune: true, Requests: 256}},
			} {
				c.Workers = 2
				b.Run(fmt.Sprintf("%s/step=%v/%s", n.name, step, c.name), func(b *testing.B) {
					d := open(b, &networked{Store: store, of: n}, Options{Workers: 2})
					b.SetBytes(int64(d.Info().DecodedBytes))
					for b.Loop() {
						tunedStream(b, d, c.Tuning, step)
					}
				})
			}
		}
	}
}

// tunedStream streams an epoch.
func tunedStream(b *testing.B, d *Dataset, t Tuning, step time.Duration) {
	s, err := d.Stream(b.Context(), StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 8, RunBlocks: 4, Delay: 2}, Tuning: t})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for {
		if _, err := s.Next(b.Context()); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			b.Fatal(err)
		}
		time.Sleep(step)
	}
	st := s.Stats()
	b.ReportMetric(float64(st.Wait.Milliseconds()), "wait-ms")
	b.ReportMetric(float64(st.Requests), "requests")
	b.ReportMetric(float64(st.Depth), "depth")
}
