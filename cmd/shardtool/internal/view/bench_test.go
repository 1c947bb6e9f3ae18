package view

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// trip is how long the store takes to answer a request.
const trip = 30 * time.Millisecond

// BenchmarkPages measures pages as their first visitor sees them: the data set is opened for each.
// It counts the requests to the store. VIEW_DATA names a folder that keeps the data set of 10^7
// samples.
func BenchmarkPages(b *testing.B) {
	b.Run("10^7 samples on disk", func(b *testing.B) {
		store := tenMillion(b)
		benchmark(b, func() objstore.Store { return store }, nil, "/samples", "/samples?from=9000000&count=100", "/samples?show=training", "/samples?show=key&find=sample-04999999",
			"/samples?show=key&find=sample-0499", "/samples?show=where&find=tokens+%3C+40", "/sample?n=7000000", "/data", "/step", "/step?n=30000&batch=256")
	})
	b.Run("10^9 samples, S3 at 30 ms", func(b *testing.B) {
		server := billion(b)
		open := func() objstore.Store {
			store, err := s3.New(b.Context(), "bucket", "", s3.Options{Endpoint: server.URL, Anonymous: true, Region: "us-east-1"})
			if err != nil {
				b.Fatal(err)
			}
			return store
		}
		benchmark(b, open, func() int { return len(server.Requests("")) }, "/samples", "/samples?from=900000000&count=100", "/samples?show=training", "/sample?n=700000000", "/data", "/step",
			"/step?n=3000000&batch=256")
	})
	b.Run("100 images of 100 KB", func(b *testing.B) {
		store := mem.New()
		build(b, store, testset.Options{}, func(yield func(testset.Sample) bool) {
			random := rand.NewChaCha8([32]byte{})
			for i := range 400 {
				image := append([]byte(picture()), make([]byte, 100_000)...) // what follows the last part of a PNG is ignored
				_, _ = random.Read(image[len(picture()):])
				if !yield(testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "png", Data: image}}}) {
					return
				}
			}
		})
		benchmark(b, func() objstore.Store { return store }, nil, "/samples?count=100&from=200")
	})
}

// benchmark measures pages. A page counts with its images, as a browser asks for them.
func benchmark(b *testing.B, open func() objstore.Store, requests func() int, paths ...string) {
	for _, path := range paths {
		b.Run(strings.TrimPrefix(path, "/"), func(b *testing.B) {
			before := 0
			if requests != nil {
				before = requests()
			}
			for b.Loop() {
				s := serve(b, open())
				page := s.want(path, http.StatusOK)
				for _, image := range images(page) {
					s.want(image, http.StatusOK)
				}
				b.StopTimer()
				end(s.Server)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/op")
			if requests != nil {
				b.ReportMetric(float64(requests()-before)/float64(b.N), "requests/op")
			}
		})
	}
}

var fieldOfPage = regexp.MustCompile(` src="(/field[^"]*)"`)

// images are the addresses that a browser asks for after a page.
func images(page string) (all []string) {
	for _, found := range fieldOfPage.FindAllStringSubmatch(page, -1) {
		all = append(all, html.UnescapeString(found[1]))
	}
	return all
}

func build(b *testing.B, store objstore.Store, o testset.Options, samples iter.Seq[testset.Sample]) {
	b.Helper()
	if _, err := testset.Build(b.Context(), store, samples, o); err != nil {
		b.Fatal(err)
	}
}

// small are samples of a short text.
func small(n int) iter.Seq[testset.Sample] {
	return func(yield func(testset.Sample) bool) {
		for i := range n {
			s := testset.Sample{Key: fmt.Sprintf("sample-%08d", i), Fields: []testset.Field{{Name: "txt", Data: fmt.Appendf(nil, "text %d of few words", i)}}}
			if !yield(s) {
				return
			}
		}
	}
}

func tokens(key string) (int64, bool) { return int64(key[len(key)-1]) * 7 % 100, true }

func tenMillion(b *testing.B) objstore.Store {
	dir := os.Getenv("VIEW_DATA")
	if dir == "" {
		dir = b.TempDir()
	}
	store, err := local.New(filepath.Join(dir, "10000000"), local.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := store.Stat(b.Context(), format.ManifestName); errors.Is(err, fs.ErrNotExist) {
		build(b, store, testset.Options{Integer: tokens}, small(10_000_000))
	}
	return store
}

// billion serves the tables of 10,000 shards of 100,000 samples each. The shards are all the same
// one.
func billion(b *testing.B) *s3server.Server {
	const shards, samples = 10_000, 100_000
	store := mem.New()
	server := s3server.New(b)
	put := func(name, from string) {
		data, _, err := objstore.ReadAll(b.Context(), store, from, 1<<40)
		if err != nil {
			b.Fatal(err)
		}
		server.Objects[name] = s3server.Stored{Data: data, ETag: `"` + from + `"`}
	}
	var names []string
	var first string
	build(b, store, testset.Options{BlockSize: 340_000, ShardSize: 1 << 40, NoKeys: true, Integer: tokens, Edit: func(m *metadata.Manifest) {
		one := m.Shards[0]
		first, m.Shards = one.Name, nil
		for i := range shards {
			one.Name = fmt.Sprintf("train-%06d.tar.zst", i)
			m.Shards, names = append(m.Shards, one), append(names, one.Name)
		}
		for i := range m.Fields {
			m.Fields[i].Samples, m.Fields[i].Bytes = shards*m.Fields[i].Samples, shards*m.Fields[i].Bytes
		}
	}}, small(samples))
	for info, err := range store.List(b.Context(), "") {
		if err != nil {
			b.Fatal(err)
		}
		put(info.Name, info.Name)
	}
	for _, name := range names {
		server.Objects[name] = server.Objects[first]
	}
	server.SetHook(func(http.ResponseWriter, *http.Request) bool {
		time.Sleep(trip)
		return false
	})
	return server
}
