package stores_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
)

// TestRemoval removes samples from a data set in a bucket, in several programs at once, and purges
// it, over a network that breaks off some answers.
func TestRemoval(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	far, _ := s.faulty(t, proxy.Options{FirstByte: 5 * time.Millisecond, Seed: 1, Faults: mixed})
	store := far.open(t, bucket, "set", s3store.Options{})
	packNumbered(t, store, 60)
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			own := far.open(t, bucket, "set", s3store.Options{})
			r, err := reshard.RemoveKeys(context.Background(), own, []string{fmt.Sprintf("s%02d", 10*i), fmt.Sprintf("s%02d", 10*i+1)}, reshard.RemoveOptions{})
			if err == nil && r.Samples+r.Already != 2 {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	removed := []uint64{0, 1, 10, 11, 20, 21, 30, 31}
	removedAre(t, store, removed)
	p, err := writer.Purge(t.Context(), store, writer.PurgeOptions{Generations: true})
	if err != nil || len(p.Samples) != len(removed) || len(p.Holding) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	removedAre(t, store, removed)
	report, err := check.Verify(t.Context(), store, check.Options{Deep: true})
	if err != nil || !report.OK() || report.Purged != uint64(len(removed)) {
		t.Errorf("%+v, %v", report, err)
	}
}

// packNumbered packs n samples, s00 and so on, a few to a shard.
func packNumbered(t *testing.T, store objstore.Store, n int) {
	t.Helper()
	w, err := writer.New(t.Context(), store, writer.Options{BlockSize: 4096, SamplesPerShard: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		if err := w.Write(t.Context(), writer.Sample{Key: fmt.Sprintf("s%02d", i), Fields: []writer.Field{{Name: "bin", Data: pattern(uint64(i), 900)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func removedAre(t *testing.T, store objstore.Store, removed []uint64) {
	t.Helper()
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !slices.Equal(d.Info().Removed, removed) {
		t.Errorf("%v are removed, want %v", d.Info().Removed, removed)
	}
	for smp, err := range d.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(removed, smp.Number) {
			t.Errorf("sample %d was delivered", smp.Number)
		}
	}
}
