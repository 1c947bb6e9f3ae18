package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/proxy"
)

// farStore is a store behind the network of the other groups, but with the whole rate for each
// connection.
type farStore struct {
	name     string
	addr     string // through the proxies
	writable bool
	proxies  []*proxy.Proxy
	clear    func() // removes what was written, if the server keeps it in this process
}

// stores measures streaming and packing on each kind of store, and lists the requests from a cold
// start to the first batch.
func (b *bench) stores() error {
	here := &host{ctx: b.ctx}
	defer here.end()
	for _, start := range []func(*host) (*farStore, error){b.farS3, b.farGS, b.farHub} {
		s, err := start(here)
		if err == nil {
			err = b.storeRows(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) storeRows(s *farStore) error {
	open := func(below string) (objstore.Store, error) {
		place, query, _ := strings.Cut(s.addr, "?")
		return address.Open(b.ctx, place+below+"?"+query, address.Options{})
	}
	if !s.writable {
		open = func(string) (objstore.Store, error) { return address.Open(b.ctx, s.addr, address.Options{}) }
	} else {
		var rates table.Sample
		short := max(b.mib/5, 100)
		for i := range b.times {
			var took [2]float64
			for j, mib := range []int{short, 3 * short} {
				store, err := open(fmt.Sprintf("/written-%d-%d", i, j))
				if err != nil {
					return err
				}
				begin := time.Now()
				if err := b.packTo(store, noise(mib)); err != nil {
					return err
				}
				took[j] = time.Since(begin).Seconds()
				s.clear()
			}
			rates = append(rates, float64(2*short<<20)/(took[1]-took[0])/float64(b.total))
		}
		b.AtLeast("stores", s.name+": packing, incompressible 100 KB / cap", rates, "x", 0.9,
			fmt.Sprintf("%s; a long run, without its start and end", mbs(rates.Median()*float64(b.total))))
		store, err := open("/set")
		if err == nil {
			err = b.packTo(store, images(b.mib))
		}
		if err != nil {
			return err
		}
	}
	var share table.Sample
	for range b.times {
		store, err := open("/set")
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
	store, err := open("/set")
	if err != nil {
		return err
	}
	asked, took, err := b.firstBatch(s, store)
	if err != nil {
		return err
	}
	b.Info("stores", s.name+": requests to the first batch from a cold start", table.One(float64(len(asked))), "",
		fmt.Sprintf("%.0f ms; %s", 1000*took, strings.Join(asked[:min(len(asked), 8)], ", ")))
	return nil
}

// firstBatch opens the data set and a stream, and returns the requests until its first batch.
func (b *bench) firstBatch(s *farStore, store objstore.Store) (asked []string, took float64, err error) {
	var mu sync.Mutex
	done := false
	for _, p := range s.proxies {
		o := b.even()
		o.Before = func(_ int64, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if what := r.Method + " " + strings.TrimPrefix(r.Header.Get("Range"), "bytes="); !done {
				parts := strings.Split(r.URL.EscapedPath(), "/")
				asked = append(asked, strings.TrimSpace(what)+" "+parts[len(parts)-1])
			}
		}
		if err := p.Set(o); err != nil {
			return nil, 0, err
		}
	}
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
	mu.Lock()
	defer mu.Unlock()
	done = true
	return slices.Clone(asked), time.Since(begin).Seconds(), nil
}

// even is the network of this group.
func (b *bench) even() proxy.Options {
	return proxy.Options{FirstByte: b.firstByte, Total: b.total, Up: b.total}
}

// noise are incompressible samples of 100 KB that cost no time to make.
func noise(mib int) iter.Seq[corpus.Sample] {
	data := make([]byte, 100_000+64*100)
	_, _ = rand.Read(data) // never fails
	return func(yield func(corpus.Sample) bool) {
		for i := range (mib << 20) / 100_000 {
			from := i % 64 * 100
			s := corpus.Sample{Key: fmt.Sprintf("%08d", i), Fields: []corpus.Field{{Name: "bin", Data: data[from : from+100_000]}}}
			if !yield(s) {
				return
			}
		}
	}
}

// images are incompressible samples of 100 KB.
func images(mib int) iter.Seq[corpus.Sample] {
	return corpus.Images(corpus.Options{Samples: (mib << 20) / 100_000, Seed: 2})
}

func (b *bench) farS3(h *host) (*farStore, error) {
	p, err := h.proxy(b.server.Endpoint, b.even())
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("s3://%s/stores?endpoint=%s&region=%s&path_style=true", b.server.Bucket, url.QueryEscape(p.URL), b.server.Region)
	return &farStore{"s3", addr, true, []*proxy.Proxy{p}, func() {}}, nil
}

func (b *bench) farGS(h *host) (*farStore, error) {
	server := gsserver.New(h)
	p, err := h.proxy(server.URL, b.even())
	if err != nil {
		return nil, err
	}
	return &farStore{"gs", "gs://bucket/stores?anonymous=true&endpoint=" + url.QueryEscape(p.URL), true, []*proxy.Proxy{p}, func() {
		server.Mu.Lock()
		defer server.Mu.Unlock()
		clear(server.Objects)
	}}, nil
}

// farHub starts a Hub with a data set whose large files are in Xet.
func (b *bench) farHub(h *host) (*farStore, error) {
	packed := mem.New()
	if err := b.packTo(packed, images(b.mib)); err != nil {
		return nil, err
	}
	files := map[string]hubserver.File{}
	for info, err := range packed.List(b.ctx, "") {
		if err != nil {
			return nil, err
		}
		data, _, err := objstore.ReadAll(b.ctx, packed, info.Name, info.Size)
		if err != nil {
			return nil, err
		}
		f := hubserver.File{Data: data}
		if len(data) > 1<<20 {
			f.Kind = hubserver.Xet
		}
		files["set/"+info.Name] = f
	}
	server := hubserver.New(h, map[string]*hubserver.Set{"org/name": hubserver.NewSet(files)})
	api, err := h.proxy(server.URL, b.even())
	if err != nil {
		return nil, err
	}
	edge, err := h.proxy(server.BytesURL, b.even())
	if err != nil {
		return nil, err
	}
	server.BytesURL = edge.URL
	for name, value := range map[string]string{"HF_ENDPOINT": api.URL, "HF_HOME": b.dir, "HF_TOKEN": ""} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return &farStore{"hf", "hf://datasets/org/name/set", false, []*proxy.Proxy{api, edge}, func() {}}, nil
}

// host is what servers for tests need of a test. It has no other methods of one.
type host struct {
	testing.TB
	ctx  context.Context
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

// proxy starts a proxy that ends with the group.
func (h *host) proxy(target string, o proxy.Options) (*proxy.Proxy, error) {
	p, err := proxy.Start(target, o)
	if err == nil {
		h.Cleanup(p.Close)
	}
	return p, err
}
