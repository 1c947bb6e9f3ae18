package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/reader"
)

// farStore is a server of one kind of store. It is in this process, and slow by itself: a proxy
// would copy each byte twice more, on the processors that the client needs.
type farStore struct {
	name  string
	addr  string // with %s for a folder
	fixed bool   // that is the store's only folder, and nothing is written
	fill  func(name string, data []byte)
	clear func() // removes all objects
	storetest.Server
}

// stores measures streaming and packing on each kind of store, and lists the requests from a cold
// start to the first batch.
func (b *bench) stores() error {
	here := &host{}
	defer here.end()
	packed := mem.New()
	if err := b.packTo(packed, noise(b.mib)); err != nil {
		return err
	}
	if err := credentials(b.dir); err != nil {
		return err
	}
	for _, start := range []func(testing.TB) *farStore{farS3, farGS, farAzure, farHub} {
		s := start(here)
		if err := b.packRow(s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for info, err := range packed.List(b.ctx, "") {
			if err != nil {
				return err
			}
			data, _, err := objstore.ReadAll(b.ctx, packed, info.Name, info.Size)
			if err != nil {
				return err
			}
			s.fill("set/"+info.Name, data)
		}
		if err := b.streamRows(s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.clear()
	}
	return nil
}

// credentials sets variables that let the stores reach the servers. home is a folder without a
// token.
func credentials(home string) (err error) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
		"AWS_EC2_METADATA_DISABLED": "true",
		"AZURE_STORAGE_ACCOUNT_KEY": base64.StdEncoding.EncodeToString(azserver.Key), "HF_HOME": home, "HF_TOKEN": "",
	} {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return err
}

func (b *bench) openFar(s *farStore, folder string) (objstore.Store, error) {
	return address.Open(b.ctx, fmt.Sprintf(s.addr, folder), address.Options{})
}

// packRow measures the rate of uploads in the middle half of a pack.
func (b *bench) packRow(s *farStore) error {
	if s.fixed {
		return nil
	}
	var rates table.Sample
	var used float64
	for i := range b.times {
		n := b.slow(s)
		store, err := b.openFar(s, fmt.Sprint("written-", i))
		if err != nil {
			return err
		}
		before := processor(os.Getpid())
		n.half = int64(b.mib) << 19
		if err := b.packTo(store, noise(b.mib)); err != nil {
			return err
		}
		used = processor(os.Getpid()) - before
		took := time.Duration(n.marks[1].Load() - n.marks[0].Load())
		rates = append(rates, float64(n.half)/took.Seconds()/float64(b.total))
		s.clear()
	}
	b.AtLeast("stores", s.name+": packing, incompressible 100 KB / cap", rates, "x", 0.9,
		fmt.Sprintf("%s in the middle half of %d MiB; processor seconds for a GB, server included: %.2f",
			mbs(rates.Median()*float64(b.total)), b.mib, used/float64(b.mib<<20)*1e9))
	return nil
}

func (b *bench) streamRows(s *farStore) error {
	var share table.Sample
	for range b.times {
		b.slow(s)
		store, err := b.openFar(s, "set")
		if err != nil {
			return err
		}
		got, err := b.consume(store, 0)
		if err != nil {
			return err
		}
		share = append(share, float64(got.bytes)/got.seconds/float64(b.total))
	}
	b.AtLeast("stores", s.name+": streaming, shuffled, verified / cap", share, "x", 0.95,
		fmt.Sprintf("%s; opening and the first batch included", mbs(share.Median()*float64(b.total))))
	store, err := b.openFar(s, "set")
	if err != nil {
		return err
	}
	asked, took, err := b.firstBatch(s, store)
	if err != nil {
		return err
	}
	blocks := len(asked)
	// On the Hub, the name of the bytes is their SHA-256.
	asked = slices.DeleteFunc(asked,
		func(what string) bool { return strings.Contains(what, "data-") || len(what) == len("GET ")+64 })
	blocks -= len(asked)
	b.Info("stores", s.name+": requests to the first batch from a cold start", table.One(float64(len(asked)+blocks)),
		"",
		fmt.Sprintf("%.0f ms; %s; %d for the blocks of 64 samples", 1000*took, strings.Join(asked, ", "), blocks))
	return nil
}

// firstBatch opens the data set and a stream, and returns the requests until its first batch.
func (b *bench) firstBatch(s *farStore, store objstore.Store) (asked []string, took float64, err error) {
	n := b.slow(s)
	begin := time.Now()
	ds, err := reader.Open(b.ctx, store, reader.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer ds.Close()
	stream, err := ds.Stream(b.ctx, shuffled)
	if err != nil {
		return nil, 0, err
	}
	defer stream.Close()
	if _, err = stream.Next(b.ctx); err != nil {
		return nil, 0, err
	}
	took = time.Since(begin).Seconds()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked), took, nil
}

// network is what all requests to a server share.
type network struct {
	*bench
	up, down *rate.Limiter
	sent     atomic.Int64 // bytes of requests
	half     int64        // bytes from the first of marks to the second
	marks    [2]atomic.Int64

	ofLayers, ofBase atomic.Int64 // bytes of shards

	mu    sync.Mutex
	asked []string
}

// slow puts a server behind a new network: each request waits before it is answered, and all bodies
// share the rate.
func (b *bench) slow(s storetest.Server) *network {
	limit := func() *rate.Limiter { return rate.NewLimiter(rate.Limit(b.total), int(b.total/50)) }
	n := &network{bench: b, up: limit(), down: limit()}
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		parts := strings.FieldsFunc(r.URL.Path, func(c rune) bool { return c == '/' })
		n.mu.Lock()
		n.asked = append(n.asked, strings.TrimSpace(r.Method+" "+parts[len(parts)-1]))
		n.mu.Unlock()
		time.Sleep(b.firstByte)
		r.Body = &slowBody{r.Body, n, r.Context()}
		var shard *atomic.Int64
		if strings.HasPrefix(parts[len(parts)-1], "data-") {
			if shard = &n.ofBase; slices.Contains(parts, "layers") {
				shard = &n.ofLayers
			}
		}
		s.Answer(&slowAnswer{w, n, r.Context(), shard}, r)
		return true
	})
	return n
}

const slowPiece = 256 << 10

type slowBody struct {
	io.ReadCloser
	*network
	ctx context.Context
}

func (s *slowBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p[:min(len(p), slowPiece)])
	if waited := s.up.WaitN(s.ctx, n); waited != nil {
		return 0, waited
	}
	now := s.sent.Add(int64(n))
	for i := range s.marks {
		if mark := s.half/2 + int64(i)*s.half; now >= mark && now-int64(n) < mark {
			s.marks[i].Store(time.Now().UnixNano())
		}
	}
	return n, err
}

type slowAnswer struct {
	http.ResponseWriter
	*network
	ctx   context.Context
	shard *atomic.Int64 // counts the bytes, unless it is nil
}

func (s *slowAnswer) Write(p []byte) (written int, err error) {
	for len(p) > written && err == nil {
		piece := p[written:min(len(p), written+slowPiece)]
		if err = s.down.WaitN(s.ctx, len(piece)); err == nil {
			_, err = s.ResponseWriter.Write(piece)
			if written += len(piece); s.shard != nil {
				s.shard.Add(int64(len(piece)))
			}
		}
	}
	return written, err
}

// noise are incompressible samples of 100 KB that cost no time to make. A sample comes again after
// 25 MB, which is farther than a block.
func noise(mib int) iter.Seq[corpus.Sample] {
	const size, distinct = 100_000, 256
	data := make([]byte, distinct*size)
	_, _ = rand.Read(data) // never fails
	return func(yield func(corpus.Sample) bool) {
		for i := range (mib << 20) / size {
			from := i % distinct * size
			if !yield(corpus.Sample{Key: fmt.Sprintf("%08d", i),
				Fields: []corpus.Field{{Name: "bin", Data: data[from : from+size]}}}) {
				return
			}
		}
	}
}

func farS3(t testing.TB) *farStore {
	server := s3server.New(t)
	server.Checks = true
	return &farStore{"s3", "s3://bucket/%s?endpoint=" + server.URL, false, func(name string, data []byte) {
		server.Objects[name] = s3server.Stored{Data: data, ETag: `"1"`, At: time.Now()}
	}, func() { clear(server.Objects) }, server}
}

func farGS(t testing.TB) *farStore {
	server := gsserver.New(t)
	return &farStore{"gs", "gs://bucket/%s?anonymous=true&endpoint=" + server.URL, false,
		func(name string, data []byte) {
			server.Objects[name] = &gsserver.Stored{Data: data, Generation: 7, At: time.Now()}
		}, func() { clear(server.Objects) }, server}
}

func farAzure(t testing.TB) *farStore {
	server := azserver.New(t)
	server.Unverified = true
	return &farStore{"az", "az://" + azserver.Account + "/box/%s?endpoint=" + server.URL, false,
		func(name string, data []byte) {
			server.Objects[name] = &azserver.Stored{Data: data, ETag: "0x1", At: time.Now(), Type: "BlockBlob"}
		}, func() { clear(server.Objects) }, server}
}

// farHub starts a Hub whose large files are in Xet.
func farHub(t testing.TB) *farStore {
	files := map[string]hubserver.File{}
	server := hubserver.New(t, map[string]*hubserver.Set{"org/name": hubserver.NewSet(files)})
	_ = os.Setenv("HF_ENDPOINT", server.URL)
	return &farStore{"hf", "hf://datasets/org/name/%s", true, func(name string, data []byte) {
		f := hubserver.File{Data: data}
		if len(data) > 1<<20 {
			f.Kind = hubserver.Xet
			hubserver.SHA256(data) // the server keeps it
		}
		files[name] = f
	}, func() {}, server}
}

// host is what servers for tests need of a test. It has no other methods of one.
type host struct {
	testing.TB
	ends []func()
}

// Helper implements testing.TB.
func (h *host) Helper() {}

// Cleanup implements testing.TB.
func (h *host) Cleanup(f func()) { h.ends = append(h.ends, f) }

// Errorf implements testing.TB.
func (h *host) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) end() {
	for _, f := range slices.Backward(h.ends) {
		f()
	}
}
