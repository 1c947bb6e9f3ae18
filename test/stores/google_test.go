package stores_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// google starts fake-gcs-server in this process and returns its URL.
func google(t *testing.T) (*fakestorage.Server, string) {
	t.Helper()
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s, s.URL()
}

// openGoogle opens a store in a bucket of its own, by an address, through an endpoint.
func openGoogle(t *testing.T, s *fakestorage.Server, endpoint, prefix string) objstore.Store {
	t.Helper()
	bucket := fmt.Sprintf("bucket-%d", buckets.Add(1))
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	return openBucket(t, endpoint, bucket, prefix)
}

func openBucket(t *testing.T, endpoint, bucket, prefix string) objstore.Store {
	t.Helper()
	store, err := address.Open(t.Context(), "gs://"+bucket+"/"+prefix+"?anonymous=true&endpoint="+url.QueryEscape(endpoint), address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestGoogle(t *testing.T) {
	s, endpoint := google(t)
	for _, prefix := range []string{"", "some/prefix"} {
		t.Run("prefix="+prefix, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) objstore.Store { return openGoogle(t, s, endpoint, prefix) })
		})
	}
}

// TestGoogleFaults runs the suite with faults of the network in all reads. Those of writes are in
// the tests of the store, whose server keeps the documented protocol of sessions: this one appends
// a chunk that is sent again.
func TestGoogleFaults(t *testing.T) {
	s, endpoint := google(t)
	p, err := proxy.Start(endpoint, proxy.Options{Seed: 14, Faults: mixed, Match: isGet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	storetest.Run(t, func(t *testing.T) objstore.Store { return openGoogle(t, s, p.URL, "p") })
}

// TestGoogleService runs the suite, with an object of many parts, against Google Cloud Storage
// itself. SHARDTOOL_TEST_GS is an address such as gs://bucket/prefix, below which it writes and
// deletes; the application default credentials are used.
func TestGoogleService(t *testing.T) {
	addr := os.Getenv("SHARDTOOL_TEST_GS")
	if addr == "" {
		t.Skip("SHARDTOOL_TEST_GS names no bucket of Google Cloud Storage: the real service is not tested")
	}
	open := func(t *testing.T) objstore.Store {
		t.Helper()
		store, err := address.Open(t.Context(), fmt.Sprintf("%s/%s-%d", strings.TrimRight(addr, "/"), strings.ToLower(rand.Text()), buckets.Add(1)), address.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for info, err := range store.List(context.Background(), "") {
				if err == nil {
					err = store.Delete(context.Background(), info.Name)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		return store
	}
	storetest.Run(t, open)
	t.Run("parts", func(t *testing.T) {
		store, data := open(t), pattern(15, 300<<20)
		info, err := objstore.Put(t.Context(), store, "large", data, objstore.Condition{IfNoneMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := objstore.ReadAll(t.Context(), store, "large", 1<<30); err != nil || !bytes.Equal(got, data) {
			t.Errorf("other bytes: %v", err)
		}
		if _, err := objstore.Put(t.Context(), store, "large", data[:20<<20], objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
			t.Error(err)
		}
		if _, err := objstore.Put(t.Context(), store, "large", data[:20<<20], objstore.Condition{IfMatch: info.ETag}); err != nil {
			t.Error(err)
		}
		if _, err := objstore.Put(t.Context(), store, "large", data[:20<<20], objstore.Condition{IfMatch: info.ETag}); !errors.Is(err, objstore.ErrChanged) {
			t.Error(err)
		}
	})
}

// TestGooglePack packs into a bucket in parts, commits, and checks every byte.
func TestGooglePack(t *testing.T) {
	s, endpoint := google(t)
	store := openGoogle(t, s, endpoint, "sets/demo")
	for part := range 2 {
		src, err := source.NewFiles(t.Context(), []string{"../../testdata/demo"}, source.FilesOptions{})
		if err == nil {
			_, err = writer.PackPart(t.Context(), store, src, part, 2, writer.Options{Name: "train", ShardSize: 64 << 10, BlockSize: 32 << 10})
			src.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if result, err := writer.Commit(t.Context(), store, writer.CommitOptions{Parts: 2}); err != nil || result.Samples != 205 {
		t.Fatalf("%+v, %v", result, err)
	}
	whole(t, store)
}

func TestGoogleWriters(t *testing.T) {
	s, endpoint := google(t)
	storetest.RunWriters(t, 1000, openGoogle(t, s, endpoint, ""))
}
