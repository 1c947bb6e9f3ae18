package ranged_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an object whose requests behave as a test decides. act sees each with its number from 0
// on; if it returns neither body nor error, the source answers.
type source struct {
	data []byte
	etag string
	act  func(ctx context.Context, i int, off, n int64) (io.ReadCloser, error)

	sent   atomic.Int64
	now    atomic.Int64 // open at once
	most   atomic.Int64
	closed atomic.Int64
}

func (s *source) get(ctx context.Context, off, n int64, etag string) (io.ReadCloser, ranged.Meta, error) {
	i := int(s.sent.Add(1)) - 1
	meta := ranged.Meta{Size: int64(len(s.data)), ETag: s.etag}
	if now := s.now.Add(1); now > s.most.Load() {
		s.most.Store(now)
	}
	if s.act != nil {
		body, err := s.act(ctx, i, off, n)
		if err != nil {
			s.now.Add(-1)
			return nil, ranged.Meta{}, err
		}
		if body != nil {
			return &counted{body, s}, meta, nil
		}
	}
	return &counted{s.body(off, n), s}, meta, nil
}

func (s *source) body(off, n int64) io.ReadCloser {
	return io.NopCloser(bytes.NewReader(s.data[off:min(off+n, int64(len(s.data)))]))
}

func (s *source) object(r *ranged.Reader) *ranged.Object {
	return r.Open("object", s.get, func(context.Context) (ranged.Meta, error) {
		return ranged.Meta{Size: int64(len(s.data)), ETag: s.etag}, nil
	})
}

type counted struct {
	io.ReadCloser
	s *source
}

func (c *counted) Close() error {
	c.s.now.Add(-1)
	c.s.closed.Add(1)
	return c.ReadCloser.Close()
}

// hanging is a body whose Read blocks until its context ends.
type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) { <-h.ctx.Done(); return 0, h.ctx.Err() }
func (h hanging) Close() error             { return nil }

func newSource(size int) *source {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return &source{data: data, etag: "v1"}
}

func quick() objstore.ReadOptions {
	return objstore.ReadOptions{
		BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond,
		FirstByteTimeout: time.Minute, StallTimeout: time.Minute,
	}
}

func read(t *testing.T, s *source, o *ranged.Object, off, n int) {
	t.Helper()
	p := make([]byte, n)
	if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, s.data[off:off+n]) {
		t.Fatalf("other bytes at %d", off)
	}
}

// settle checks that every body is closed. Streams that lost a race close themselves. The test runs
// in a bubble, whose clock no busy machine moves.
func settle(t *testing.T, s *source) {
	t.Helper()
	synctest.Wait()
	if n := s.now.Load(); n != 0 {
		t.Fatalf("%d bodies are still open", n)
	}
}

// TestHedge checks that, once the usual latency is known, a late request gets a hedge, that the
// hedge's answer is used and the first request cancelled. At most a twentieth of the requests are
// hedged.
func TestHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(100_000)
		var slow atomic.Bool
		cancelled := make(chan struct{}, 1000)
		var first sync.Map
		s.act = func(ctx context.Context, _ int, off, _ int64) (io.ReadCloser, error) {
			if !slow.Load() {
				return nil, nil
			}
			if _, again := first.LoadOrStore(off, true); again {
				return nil, nil
			}
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, ctx.Err()
		}
		r := ranged.New("test:", quick(), nil)
		o := s.object(r)
		for i := range 5 {
			slow.Store(false)
			for range 60 {
				read(t, s, o, i, 1000)
			}
			slow.Store(true)
			read(t, s, o, i, 1000)
			<-cancelled
		}
		if stats := r.Stats(); stats.HedgesWon != 5 || stats.Hedges*20 > stats.Requests {
			t.Fatalf("%+v", stats)
		}
		settle(t, s)
	})
}

// TestHedgeOfBody checks that an answer whose body begins late is hedged too, and that the body
// that lost is closed.
func TestHedgeOfBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(100_000)
		var hang atomic.Bool
		s.act = func(ctx context.Context, _ int, _, _ int64) (io.ReadCloser, error) {
			if hang.Swap(false) {
				return hanging{ctx}, nil
			}
			return nil, nil
		}
		r := ranged.New("test:", quick(), nil)
		o := s.object(r)
		for i := range 100 {
			read(t, s, o, i, 1000)
		}
		hang.Store(true)
		read(t, s, o, 7, 50_000)
		if r.Stats().HedgesWon == 0 {
			t.Fatalf("%+v", r.Stats())
		}
		settle(t, s)
	})
}

// TestHedgeBudget checks that a store that is always late is not sent every request twice.
func TestHedgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(1000)
		var slow atomic.Bool
		s.act = func(context.Context, int, int64, int64) (io.ReadCloser, error) {
			if slow.Load() {
				time.Sleep(15 * time.Millisecond)
			}
			return nil, nil
		}
		r := ranged.New("test:", quick(), nil)
		o := s.object(r)
		for range 64 {
			read(t, s, o, 0, 10)
		}
		slow.Store(true)
		for range 100 {
			read(t, s, o, 0, 10)
		}
		if stats := r.Stats(); stats.Hedges*20 > stats.Requests {
			t.Fatalf("%+v", stats)
		}
		settle(t, s)
	})
}

// TestConcurrency checks that the number of open requests, including hedges, stays within the
// limit.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(1 << 20)
		opts := quick()
		opts.Concurrency, opts.PartSize = 8, 4096
		r := ranged.New("test:", opts, nil)
		o := s.object(r)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				p := make([]byte, 1<<20)
				if err := o.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, s.data) {
					t.Error("other bytes", err)
				}
			})
		}
		group.Wait()
		settle(t, s)
		if most := s.most.Load(); most > int64(8+ranged.Extra(8)) {
			t.Fatalf("%d requests at once", most)
		}
		if stats := r.Stats(); stats.Bytes != 4<<20 {
			t.Fatalf("%+v", stats)
		}
	})
}

// TestEnds checks that the end of a context, and Close, end reads that wait for a slot, an answer,
// bytes, or a retry.
func TestEnds(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, i int, off, n int64) (io.ReadCloser, error){
		"answer": func(ctx context.Context, _ int, _, _ int64) (io.ReadCloser, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"bytes": func(ctx context.Context, _ int, _, _ int64) (io.ReadCloser, error) { return hanging{ctx}, nil },
		"rest": func(ctx context.Context, _ int, _, n int64) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, n-1)), hanging{ctx})), nil
		},
		"retry": func(context.Context, int, int64, int64) (io.ReadCloser, error) {
			return nil, &ranged.Transient{Err: errors.New("no"), After: 20 * time.Second, Answered: true}
		},
	} {
		for _, how := range []string{"cancel", "deadline", "close"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSource(10_000)
					s.act = act
					opts := quick()
					opts.Concurrency = 1
					r := ranged.New("test:", opts, nil)
					o := s.object(r)
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					want := context.Canceled
					switch how {
					case "cancel":
						time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("another's failure")) })
					case "deadline":
						limited, stop := context.WithTimeout(ctx, 20*time.Millisecond)
						defer stop()
						ctx, want = limited, context.DeadlineExceeded
					case "close":
						time.AfterFunc(20*time.Millisecond, func() { o.Close() })
						want = fs.ErrClosed
					}
					var group sync.WaitGroup
					for range 3 { // two of them wait for the slot
						group.Go(func() {
							if err := o.ReadAt(ctx, make([]byte, 5000), 0); !errors.Is(err, want) {
								t.Errorf("%v; want %v", err, want)
							}
						})
					}
					group.Wait()
					settle(t, s)
				})
			})
		}
	}
}

// TestChanged checks that no byte of an answer of another version reaches the caller, whichever
// part it belongs to.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(100_000)
		opts := quick()
		opts.PartSize = 10_000
		o := s.object(ranged.New("test:", opts, nil))
		read(t, s, o, 0, 10)
		s.etag = "v2"
		p := make([]byte, 50_000)
		if err := o.ReadAt(t.Context(), p, 0); !errors.Is(err, objstore.ErrChanged) {
			t.Fatal(err)
		}
		if !bytes.Equal(p, make([]byte, len(p))) {
			t.Fatal("bytes of the other version")
		}
		settle(t, s)
	})
}

// TestFinal checks that an error that is not Transient is returned without a retry.
func TestFinal(t *testing.T) {
	s := newSource(10)
	s.act = func(context.Context, int, int64, int64) (io.ReadCloser, error) { return nil, fs.ErrNotExist }
	r := ranged.New("test:", quick(), nil)
	if err := s.object(r).ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) || s.sent.Load() != 1 {
		t.Fatalf("%v after %d requests", err, s.sent.Load())
	}
}

// TestOutageLoad checks that during an outage all waiting reads together send no more requests than
// the budget permits, and that none gives up early.
func TestOutageLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(1000)
		s.act = func(context.Context, int, int64, int64) (io.ReadCloser, error) {
			return nil, &ranged.Transient{Err: errors.New("down"), Answered: true}
		}
		opts := quick()
		opts.Concurrency, opts.MaxAttempts, opts.MaxElapsed = 8, 1_000_000, 2*time.Second
		o := s.object(ranged.New("test:", opts, nil))
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				begin := time.Now()
				err := o.ReadAt(t.Context(), make([]byte, 10), 0)
				if took := time.Since(begin); err == nil || took < opts.MaxElapsed {
					t.Errorf("given up after %v: %v", took, err)
				}
			})
		}
		start := time.Now()
		group.Wait()
		// The first and last requests of each read, the burst of 2 x 8, one per second (8/8), and one
		// for rounding.
		most := 2*32 + 16 + int64(time.Since(start).Seconds()) + 1
		if sent := s.sent.Load(); sent > most {
			t.Fatalf("%d requests, want at most %d", sent, most)
		}
	})
}

// TestRandomFaults reads at random offsets through requests that fail in every way: the bytes are
// always right.
func TestRandomFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(1 << 20)
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(7, 7))
		s.act = func(ctx context.Context, _ int, off, n int64) (io.ReadCloser, error) {
			mu.Lock()
			kind, cut := random.IntN(8), random.Int64N(n)
			mu.Unlock()
			body := s.body(off, n)
			switch kind {
			case 0:
				return nil, &ranged.Transient{Err: errors.New("503"), Answered: true, Throttled: true}
			case 1:
				return io.NopCloser(io.LimitReader(body, cut)), nil
			case 2:
				return io.NopCloser(io.MultiReader(io.LimitReader(body, cut), broken{})), nil
			case 3:
				return io.NopCloser(io.MultiReader(io.LimitReader(body, cut), hanging{ctx})), nil
			}
			return nil, nil
		}
		opts := quick()
		opts.StallTimeout, opts.FirstByteTimeout, opts.PartSize = 50*time.Millisecond, 50*time.Millisecond, 64<<10
		r := ranged.New("test:", opts, nil)
		o := s.object(r)
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(8, uint64(worker)))
				for range 10 {
					off := random.IntN(1 << 20)
					p := make([]byte, random.IntN(min(200_000, 1<<20-off)+1))
					if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
						t.Error(err)
					} else if !bytes.Equal(p, s.data[off:off+len(p)]) {
						t.Errorf("other bytes at %d", off)
					}
				}
			})
		}
		group.Wait()
		settle(t, s)
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("read tcp: connection reset by peer") }

// TestAdaptiveStalls checks that, once the usual latencies are known, late and stopped answers are
// cancelled long before the configured minute, which would outlast the test.
func TestAdaptiveStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(10_000)
		var hang atomic.Int64
		s.act = func(ctx context.Context, _ int, off, n int64) (io.ReadCloser, error) {
			switch hang.Swap(0) {
			case 1:
				<-ctx.Done()
				return nil, ctx.Err()
			case 2:
				return io.NopCloser(io.MultiReader(bytes.NewReader(s.data[off:off+1000]), hanging{ctx})), nil
			}
			// Read several times, so that there are gaps to learn from.
			third := n / 3
			return io.NopCloser(io.MultiReader(s.body(off, third), s.body(off+third, third), s.body(off+2*third, n-2*third))), nil
		}
		opts := quick()
		opts.NoHedge, opts.FirstByteTimeout, opts.StallTimeout, opts.MaxElapsed = true, time.Hour, time.Hour, 2*time.Hour
		r := ranged.New("test:", opts, nil)
		o := s.object(r)
		for range 64 {
			read(t, s, o, 0, 9000)
		}
		for kind := range int64(2) {
			hang.Store(kind + 1)
			read(t, s, o, 0, 9000)
		}
		if stats := r.Stats(); stats.Stalls < 2 || stats.Resumes < 1 {
			t.Fatalf("%+v", stats)
		}
	})
}

// TestShrunk checks that a server's answer that a range is past the end, of an object that was
// longer before, is ErrChanged.
func TestShrunk(t *testing.T) {
	s := newSource(10_000)
	o := s.object(ranged.New("test:", quick(), nil))
	if _, err := o.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.act = func(context.Context, int, int64, int64) (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
	if err := o.ReadAt(t.Context(), make([]byte, 10), 9990); !errors.Is(err, objstore.ErrChanged) {
		t.Fatal(err)
	}
	if err := s.object(ranged.New("test:", quick(), nil)).ReadAt(t.Context(), make([]byte, 10), 9990); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
}
