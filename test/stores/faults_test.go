package stores_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/proxy"
)

// pattern returns pseudo-random bytes.
func pattern(seed uint64, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(data)
	return data
}

func isGet(r *http.Request) bool { return r.Method == http.MethodGet }

// keys returns the credentials that a proxy signs with.
func (s *server) keys() credentials.StaticCredentialsProvider {
	return credentials.NewStaticCredentialsProvider(s.access, s.secret, s.token)
}

// reads requests random ranges in many goroutines. A range that is read must have the object's
// bytes, compared by SHA-256. reads returns the number of ranges read, and the first failure.
func reads(t *testing.T, object objstore.Object, want []byte, ranges int) (read int, failed error) {
	t.Helper()
	const goroutines = 8
	var group errgroup.Group
	counts := make([]int, goroutines)
	failures := make([]error, goroutines)
	for g := range goroutines {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(7, uint64(g)))
			for range ranges / goroutines {
				from := random.IntN(len(want))
				n := 1 + random.IntN(min(len(want)-from, 1<<20))
				p := make([]byte, n)
				if err := object.ReadAt(t.Context(), p, int64(from)); err != nil {
					failures[g] = err
					continue
				}
				if sha256.Sum256(p) != sha256.Sum256(want[from:from+n]) {
					return fmt.Errorf("other bytes: %d at %d", n, from)
				}
				counts[g]++
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for g := range goroutines {
		read += counts[g]
		if failed == nil {
			failed = failures[g]
		}
	}
	return read, failed
}

// impatient makes a store give up stalled requests soon. One that it cancels by mistake on a slow
// machine is retried.
var impatient = s3store.Options{ReadOptions: objstore.ReadOptions{FirstByteTimeout: 2 * time.Second, StallTimeout: time.Second}}

// TestReadsThroughFaults reads under each temporary fault: every range arrives with the right
// bytes.
func TestReadsThroughFaults(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	want := pattern(1, 5<<20+777)
	if _, err := objstore.Put(t.Context(), s.open(t, bucket, "", s3store.Options{}), "object", want, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]proxy.Options{
		"none":            {},
		"delay":           {FirstByte: 5 * time.Millisecond},
		"throttle":        {PerConn: 20 << 20, Total: 60 << 20},
		"resets":          {Faults: proxy.Faults{Reset: 0.3}},
		"lost":            {Faults: proxy.Faults{Lost: 0.2}},
		"short":           {Faults: proxy.Faults{Short: 0.3}},
		"503":             {Faults: proxy.Faults{Busy: 0.2}},
		"503 Retry-After": {Faults: proxy.Faults{Busy: 0.05}, RetryAfter: "0"},
		"stalled headers": {Faults: proxy.Faults{StallHeaders: 0.03}},
		"stalled bodies":  {Faults: proxy.Faults{StallBody: 0.03}},
		"all":             {Faults: proxy.Faults{Reset: 0.05, Lost: 0.03, Short: 0.05, Busy: 0.05, StallHeaders: 0.01, StallBody: 0.01}, FirstByte: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			opt.Seed, opt.Match = 5, isGet
			through, p := s.faulty(t, opt)
			store := through.open(t, bucket, "", impatient)
			object, err := store.Open(t.Context(), "object")
			if err != nil {
				t.Fatal(err)
			}
			defer object.Close()
			const ranges = 160
			read, err := reads(t, object, want, ranges)
			if err != nil || read != ranges {
				t.Fatalf("%d of %d ranges were read: %v", read, ranges, err)
			}
			counts := p.Counts()
			if opt.Faults != (proxy.Faults{}) && counts.Faults() == 0 {
				t.Fatalf("no fault happened: %+v", counts)
			}
			// Most what broke off was not asked for again from the beginning.
			stats := store.Stats()
			t.Logf("%+v", counts)
			if (opt.Faults.Reset > 0.1 || opt.Faults.Short > 0.1) && stats.Resumes == 0 {
				t.Errorf("nothing was resumed: %+v", stats)
			}
		})
	}
}

// TestReadsThroughLies reads from servers that answer another request than the one sent. A range
// may fail and never has other bytes; if all answers are wrong, the error describes the difference.
func TestReadsThroughLies(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	want := pattern(2, 3<<20+5)
	if _, err := objstore.Put(t.Context(), s.open(t, bucket, "", s3store.Options{}), "object", want, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		some, all proxy.Options
		phrases   []string
	}{
		"wrong range": {
			proxy.Options{Faults: proxy.Faults{WrongRange: 0.2}},
			proxy.Options{Faults: proxy.Faults{WrongRange: 1}},
			[]string{"another range"},
		},
		"cut": {
			proxy.Options{Faults: proxy.Faults{Cut: 0.2}},
			proxy.Options{Faults: proxy.Faults{Cut: 1}},
			[]string{"another range", "Content-Length"},
		},
		"HTML": {
			proxy.Options{Faults: proxy.Faults{HTML: 0.2}},
			proxy.Options{Faults: proxy.Faults{HTML: 1}},
			[]string{"HTML", "check the address, and the proxy and its login"},
		},
		"whole objects": {
			proxy.Options{IgnoreRange: true},
			proxy.Options{IgnoreRange: true},
			[]string{"the server ignores Range", "use a server that serves ranges"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, opt := range []proxy.Options{test.some, test.all} {
				opt.Seed, opt.Match, opt.Signer, opt.Region = 6, isGet, s.keys(), s.region
				through, p := s.faulty(t, opt)
				store := through.open(t, bucket, "", s3store.Options{})
				object, err := store.Open(t.Context(), "object")
				if err != nil {
					t.Fatal(err)
				}
				defer object.Close()
				reads(t, object, want, 80)
				if opt.Faults == test.all.Faults {
					err := object.ReadAt(t.Context(), make([]byte, 1000), 5000)
					wantText(t, s, err, test.phrases...)
				}
				if !opt.IgnoreRange && p.Counts().Faults() == 0 {
					t.Error("no fault happened")
				}
			}
		})
	}
}

// TestReplacedWhileRead replaces the object before the n-th request of a read that takes many: the
// read returns the old version's bytes or ErrChanged.
func TestReplacedWhileRead(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	direct := s.open(t, bucket, "", s3store.Options{})
	for _, size := range []int{2 << 20, 2<<20 - 1, 1 << 20} { // of the new version: as large, and smaller
		for _, at := range []int64{0, 1, 5} {
			t.Run(fmt.Sprintf("size=%d at=%d", size, at), func(t *testing.T) {
				old, other := pattern(3, 2<<20), pattern(4, size)
				if _, err := objstore.Put(t.Context(), direct, "object", old, objstore.Condition{}); err != nil {
					t.Fatal(err)
				}
				var failed error
				through, p := s.faulty(t, proxy.Options{Match: isGet, Before: func(n int64, _ *http.Request) {
					if n == at {
						_, failed = objstore.Put(t.Context(), direct, "object", other, objstore.Condition{})
					}
				}})
				// One request at a time, so that numbers are in order.
				store := through.open(t, bucket, "", s3store.Options{ReadOptions: objstore.ReadOptions{PartSize: 128 << 10, Concurrency: 1, NoHedge: true}})
				object, err := store.Open(t.Context(), "object")
				if err != nil {
					t.Fatal(err)
				}
				defer object.Close()
				info, err := object.Info(t.Context())
				if err != nil || info.Size != int64(len(old)) {
					t.Fatalf("%+v, %v", info, err)
				}
				got := make([]byte, len(old))
				err = object.ReadAt(t.Context(), got, 0)
				if failed != nil || p.Counts().Methods["GET"].Requests <= at {
					t.Fatalf("nothing was replaced: %v", failed)
				}
				if !errors.Is(err, objstore.ErrChanged) {
					t.Fatalf("%v; the bytes are the old ones: %v", err, bytes.Equal(got, old))
				}
				wantText(t, s, err, "object", "replaced by another writer")
			})
		}
	}
}

// TestCutShort replaces the object by its own beginning, under an open handle and before Open.
func TestCutShort(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	store := s.open(t, bucket, "", s3store.Options{})
	data := pattern(8, 300_000)
	put := func(data []byte) {
		t.Helper()
		if _, err := objstore.Put(t.Context(), store, "object", data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put(data)
	object, err := store.Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if err := object.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
		t.Fatal(err)
	}
	put(data[:200_000])
	for _, off := range []int64{100_000, 199_990, 250_000} {
		if err := object.ReadAt(t.Context(), make([]byte, 20), off); !errors.Is(err, objstore.ErrChanged) {
			t.Errorf("a read at %d of an object cut short: %v", off, err)
		}
	}
	fresh, err := store.Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	err = fresh.ReadAt(t.Context(), make([]byte, 20), 199_990)
	wantText(t, s, err, "object", "unexpected EOF")
}
