package reader

import (
	"context"
	"testing"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader/check"
)

// TestGolden: the data set that was written once, compressed and plain shards mixed, opens, is
// whole, and gives its samples.
func TestGolden(t *testing.T) {
	ctx := context.Background()
	store, err := local.New("../testdata/spec/golden-v1", local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := check.Verify(ctx, store, check.Options{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Faults {
		t.Errorf("%+v", f)
	}
	ds, err := Open(ctx, store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	n := uint64(0)
	for s, err := range ds.Samples(ctx, Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		numbers, err := ds.Lookup(ctx, string(s.Key))
		if err != nil || len(numbers) != 1 || numbers[0] != n {
			t.Errorf("sample %d, key %q: looked up as %v, %v", n, s.Key, numbers, err)
		}
		n++
	}
	if n != 126 || n != report.Samples {
		t.Errorf("%d samples, verified %d", n, report.Samples)
	}
}
