package stores_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestParts packs in parts into a bucket: four parts at once, one of them twice, and one twice at
// the same time, followed by two commits. The data set is complete and equals one packed in parts
// elsewhere.
func TestParts(t *testing.T) {
	direct, _ := versity(t)
	bad, _ := direct.faulty(t, proxy.Options{Seed: 13, Faults: mixed})
	for name, s := range map[string]*server{"direct": direct, "through a bad network": bad} {
		t.Run(name, func(t *testing.T) {
			store := s.open(t, s.bucket(t), "sets/parts", s3store.Options{})
			const parts = 4
			pack := func(part int) error {
				src, err := source.NewFiles(context.Background(), []string{"../../testdata/demo"}, source.FilesOptions{})
				if err != nil {
					return err
				}
				defer src.Close()
				_, err = writer.PackPart(t.Context(), store, src, part, parts, writer.Options{Name: "train", ShardSize: 64 << 10, BlockSize: 32 << 10})
				if err != nil {
					err = fmt.Errorf("part %d: %w", part, err)
				}
				return err
			}
			var g errgroup.Group
			for _, part := range []int{0, 1, 3, 3} {
				g.Go(func() error { return pack(part) })
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if r, err := writer.Missing(t.Context(), store, "", parts); err != nil || len(r.Missing) != 1 || r.Missing[0] != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			if _, err := writer.Commit(t.Context(), store, writer.CommitOptions{Parts: parts}); !errors.Is(err, writer.ErrMissing) {
				t.Fatal(err)
			}
			if _, err := store.Stat(t.Context(), "manifest.json"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for _, part := range []int{2, 1} {
				if err := pack(part); err != nil {
					t.Fatal(err)
				}
			}
			results := make([]*writer.Result, 2)
			for i := range results {
				g.Go(func() (err error) {
					results[i], err = writer.Commit(t.Context(), store, writer.CommitOptions{Parts: parts})
					return err
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if results[0].Tables != results[1].Tables || results[0].Samples != 205 {
				t.Errorf("%+v and %+v", results[0], results[1])
			}
			whole(t, store)
		})
	}
}

// whole checks every byte of a data set.
func whole(t *testing.T, store objstore.Store) {
	t.Helper()
	rep, err := check.Verify(t.Context(), store, check.Options{Deep: true})
	if err != nil || len(rep.Faults) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}
