package reader

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// phased is a store whose reads of shards spend their time in a phase.
type phased struct {
	objstore.Store
	phase objstore.Phase
	delay time.Duration
}

func (p *phased) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := p.Store.Open(ctx, name)
	if err != nil || !strings.HasSuffix(name, ".tar.zst") {
		return o, err
	}
	return &phasedObject{o, p}, nil
}

type phasedObject struct {
	objstore.Object
	p *phased
}

func (o *phasedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	objstore.Trace(ctx, o.p.phase, 1)
	time.Sleep(o.p.delay)
	objstore.Trace(ctx, o.p.phase, -1)
	return o.Object.ReadAt(ctx, p, off)
}

// longText are samples that take long to decode and no time to read.
func longText() (samples []testset.Sample) {
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the shard holds samples in blocks of about one mebibyte each and every block is checked before it is used")
	for i := range 24 {
		var text bytes.Buffer
		for text.Len() < 512<<10 {
			text.WriteString(words[random.IntN(len(words))])
			text.WriteByte(' ')
		}
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "txt", Data: text.Bytes()}}})
	}
	return samples
}

// refusing serves objects and refuses each range once.
func refusing(t *testing.T, store objstore.Store, pause time.Duration) objstore.Store {
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		mu.Lock()
		key := name + r.Header.Get("Range")
		again := asked[key]
		asked[key] = true
		mu.Unlock()
		if !again && strings.HasSuffix(name, ".tar.zst") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		data, info, err := objstore.ReadAll(r.Context(), store, name, 1<<30)
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"`+strings.Trim(info.ETag, `"`)+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(server.Close)
	out, err := httpstore.New(server.URL, httpstore.Options{ReadOptions: objstore.ReadOptions{Concurrency: 8, BackoffMin: pause}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestStallCauses brings every cause about, and finds it to be the greatest. A busy machine adds
// causes of its own: another try has longer delays.
func TestStallCauses(t *testing.T) {
	if testing.Short() {
		t.Skip("shares of time: make test runs it without the race detector")
	}
	watch(t)
	small := testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10}
	const tries = 8
	delay := 4 * time.Millisecond
	slow := func(phase objstore.Phase) func(*testing.T) objstore.Store {
		return func(*testing.T) objstore.Store { return &phased{mem.New(), phase, delay} }
	}
	plain := func(*testing.T) objstore.Store { return mem.New() }
	for _, c := range []struct {
		cause   account.Cause
		store   func(*testing.T) objstore.Store
		samples []testset.Sample
		over    func(*testing.T, objstore.Store) objstore.Store
		count   int // of samples, 800 when 0
		opt     StreamOptions
		first   bool // the first batch alone counts
	}{
		{cause: account.Request, store: slow(objstore.PhaseRequest), opt: StreamOptions{GlobalBatch: 100}},
		{cause: account.Request, store: slow(objstore.PhaseRequest), opt: StreamOptions{GlobalBatch: 400, Shuffle: true, Order: OrderOptions{Lanes: 1, RunBlocks: 1, Delay: 1}}},
		{cause: account.Throttled, store: slow(objstore.PhasePause), opt: StreamOptions{GlobalBatch: 100}},
		{cause: account.Throttled, store: plain, over: func(t *testing.T, store objstore.Store) objstore.Store { return refusing(t, store, 10*delay) }, count: 300, opt: StreamOptions{GlobalBatch: 100}},
		{cause: account.Cache, store: slow(objstore.PhaseCache), opt: StreamOptions{GlobalBatch: 100}},
		{cause: account.Window, store: slow(objstore.PhaseTurn), opt: StreamOptions{GlobalBatch: 100}},
		{cause: account.Window, store: slow(objstore.PhaseRequest), opt: StreamOptions{GlobalBatch: 8, Shuffle: true, Order: OrderOptions{Lanes: 24, Delay: 8, RunBlocks: 1}, Tuning: Tuning{Memory: 64 << 20}}, first: true},
		{cause: account.Decode, store: plain, samples: longText(), opt: StreamOptions{GlobalBatch: 12, Epochs: 20}},
		{cause: account.Memory, store: slow(objstore.PhaseRequest), count: 1500, opt: StreamOptions{GlobalBatch: 16, Shuffle: true, Order: OrderOptions{Lanes: 96, Delay: 8, RunBlocks: 1}, Tuning: Tuning{Memory: 1 << 20}}},
		{cause: account.Map, store: plain, count: 300, opt: StreamOptions{
			GlobalBatch: 64, Map: func(context.Context, *Sample) error {
				time.Sleep(delay / 12)
				return nil
			},
		}},
	} {
		t.Run(c.cause.String(), func(t *testing.T) {
			if c.samples == nil {
				c.samples = mixed(cmp.Or(c.count, 800))
			}
			c.opt.Tuning.Workers, c.opt.Epochs = 1, max(c.opt.Epochs, 1)
			for try := range tries {
				delay = 4 * time.Millisecond << try
				store := c.store(t)
				set := newStreamed(t, store, c.samples, small)
				if c.over != nil {
					set.Dataset = open(t, c.over(t, store), Options{Workers: 2})
				}
				s := set.stream(t, c.opt)
				for n := 0; !c.first || n < 1; n++ {
					if _, err := s.Next(t.Context()); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
				}
				st := s.Stats()
				s.Close()
				if st.Wait != st.Stalls.Total() || st.Wait < st.FirstWait || st.Wait > st.Elapsed {
					t.Fatalf("wait %v (first %v) of %v, stalls %+v", st.Wait, st.FirstWait, st.Elapsed, st.Stalls)
				}
				greatest := true
				for name, d := range st.Stalls.All() {
					greatest = greatest && (name == c.cause.String()) == (d > st.Wait/2)
				}
				if greatest {
					return
				}
				t.Logf("try %d: %v, stalls %+v", try, st.Wait, st.Stalls)
			}
			t.Errorf("%s is not the greatest", c.cause)
		})
	}
}

// TestStallsSum holds the account against the time that calls of Next take.
func TestStallsSum(t *testing.T) {
	if testing.Short() {
		t.Skip("shares of time: make test runs it without the race detector")
	}
	watch(t)
	set := newStreamed(t, &phased{mem.New(), objstore.PhaseRequest, 2 * time.Millisecond}, mixed(2000), testset.Options{BlockSize: 8 << 10, ShardSize: 200 << 10})
	for try := range 20 { // a process that is suspended between two readings of the clock measures something else
		s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 8, Delay: 4}, Tuning: Tuning{Workers: 1}})
		var outside time.Duration
		var batches, samples, size uint64
		for {
			begin := time.Now()
			b, err := s.Next(t.Context())
			outside += time.Since(begin)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			batches++
			samples += uint64(len(b.Samples))
			for i := range b.Samples {
				for _, f := range b.Samples[i].Fields {
					size += uint64(len(f.Data))
				}
			}
		}
		st := s.Stats()
		if st.Batches != batches || st.Samples != samples || st.Bytes != size || st.FirstWait == 0 {
			t.Fatalf("%d batches, %d samples, %d bytes came, the account says %+v", batches, samples, size, st)
		}
		if st.Wait > outside {
			t.Fatalf("%v waited, the account says %v", outside, st.Wait)
		}
		if st.Wait >= outside*98/100 {
			return
		}
		t.Logf("try %d: %v waited, the account says %v", try, outside, st.Wait)
	}
	t.Fatal("the account does not come to the wait")
}

// TestStreamLog: lines are logged while the stream runs, and one after the last batch.
func TestStreamLog(t *testing.T) {
	watch(t)
	set := newStreamed(t, &phased{mem.New(), objstore.PhaseRequest, time.Millisecond}, mixed(500), testset.Options{BlockSize: 8 << 10})
	lines := make(chan string, 1000)
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "msg=autotune") {
			return len(p), nil
		}
		select {
		case lines <- string(p):
		default:
		}
		return len(p), nil
	}), nil))
	s := set.stream(t, StreamOptions{GlobalBatch: 64, Epochs: 1, World: 2, Rank: 1, Log: log, StatsEvery: time.Millisecond})
	last := ""
	for _, err := s.Next(t.Context()); err == nil; _, err = s.Next(t.Context()) {
		last = <-lines
	}
	s.Close()
	close(lines)
	for line := range lines {
		last = line
	}
	for _, part := range []string{"msg=stream", "rank=1", "batches=8", "batches_per_s=", "mb_per_s=", "wait_share="} {
		if !strings.Contains(last, part) {
			t.Errorf("the last line lacks %s: %q", part, last)
		}
	}
	if _, err := set.Stream(t.Context(), StreamOptions{Log: log, StatsEvery: -1}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStatsWhileStreaming reads the account from elsewhere all the time.
func TestStatsWhileStreaming(t *testing.T) {
	watch(t)
	store := &far{Store: mem.New(), requests: 8, delay: time.Millisecond}
	set := newStreamed(t, store, mixed(1000), testset.Options{BlockSize: 8 << 10, ShardSize: 100 << 10})
	s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 2, Map: mapKey, Order: OrderOptions{Lanes: 8, Delay: 4}, Tuning: Tuning{Memory: 2 << 20}})
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		before := s.Stats()
		for !done.Load() {
			now := s.Stats()
			for name, d := range now.Stalls.Sub(before.Stalls).All() {
				if d < 0 {
					t.Errorf("%s went back by %v", name, d)
				}
			}
			if p := now.Pieces; p.Queued < 0 || p.Reading < 0 || p.Paused < 0 || p.Decoding < 0 {
				t.Errorf("%+v", p)
			}
			before = now
		}
	})
	for _, err := s.Next(t.Context()); err == nil; _, err = s.Next(t.Context()) {
		continue
	}
	done.Store(true)
	wg.Wait()
	if p := s.Stats().Pieces; p != (stats.Pieces{}) {
		t.Errorf("at the end: %+v", p)
	}
	s.Close()
	if a, b := s.Stats(), s.Stats(); a.Elapsed != b.Elapsed {
		t.Errorf("a closed stream grows older: %v, %v", a.Elapsed, b.Elapsed)
	}
}

// TestStallsAreInNext: the account never has more than the time in Next, and a batch that was there
// when it was asked for is in it as one that is handed over.
func TestStallsAreInNext(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(500), testset.Options{BlockSize: 8 << 10})
	s := set.stream(t, StreamOptions{GlobalBatch: 8, Epochs: 1})
	var inside time.Duration
	for {
		for len(s.leg.ready) == 0 && s.Stats().Samples < 400 {
			time.Sleep(10 * time.Microsecond)
		}
		before := s.Stats().Stalls
		asked := time.Now()
		_, err := s.Next(t.Context())
		inside += time.Since(asked)
		if got := s.Stats().Stalls; got.Total() > inside || got.Order <= before.Order && got.Total() <= before.Total() {
			t.Fatalf("%+v, %+v before, %v in Next", got, before, inside)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
