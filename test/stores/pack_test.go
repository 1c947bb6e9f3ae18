package stores_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestPackBucket packs a bucket of small objects to another place of the same server, over a slow
// network that breaks off some answers: many objects are requested at a time, and every byte
// arrives.
func TestPackBucket(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	raw := s.open(t, bucket, "raw", s3store.Options{})
	const files = 300
	size := func(i int) int { return i * 37 % 9000 }
	var group errgroup.Group
	group.SetLimit(16)
	for i := range files {
		group.Go(func() error {
			_, err := objstore.Put(t.Context(), raw, fmt.Sprintf("%02d/%04d.bin", i%7, i), pattern(uint64(i), size(i)), objstore.Condition{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	far, p := s.faulty(t, proxy.Options{FirstByte: 100 * time.Millisecond, Seed: 1, Faults: proxy.Faults{Reset: 0.05, Busy: 0.05}})
	src, err := source.NewObjects(t.Context(), []objstore.Store{far.open(t, bucket, "raw", s3store.Options{})}, source.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p.ResetCounts()
	packed := far.open(t, bucket, "packed", s3store.Options{})
	res, err := writer.Pack(t.Context(), packed, src, writer.Options{BlockSize: 16 << 10, ShardSize: 512 << 10, Workers: 2})
	if err != nil || res.Samples != files {
		t.Fatalf("%+v, %v", res, err)
	}
	if n := p.Counts().MaxInFlight; n < 16 {
		t.Errorf("at most %d requests were in flight", n)
	}
	ds, err := reader.Open(t.Context(), s.open(t, bucket, "packed", s3store.Options{}), reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	seen := 0
	for sample, err := range ds.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		var dir, i int
		if _, err := fmt.Sscanf(string(sample.Key), "%02d/%04d", &dir, &i); err != nil || !bytes.Equal(sample.Fields[0].Data, pattern(uint64(i), size(i))) {
			t.Fatalf("%s: other bytes, %v", sample.Key, err)
		}
		seen++
	}
	if seen != files {
		t.Fatalf("%d samples of %d", seen, files)
	}
}
