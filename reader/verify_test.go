package reader

import (
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

func verify(t testing.TB, store objstore.Store, deep bool) *Report {
	t.Helper()
	r, err := Verify(t.Context(), store, Options{}, VerifyOptions{Deep: deep})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyClean(t *testing.T) {
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		for _, deep := range []bool{false, true} {
			r := verify(t, store, deep)
			if !r.OK() || len(r.Notes) > 0 {
				t.Fatalf("deep %v: %+v", deep, r)
			}
			d := open(t, store, Options{})
			if r.Shards != uint64(d.NumShards()) || r.Blocks != d.NumBlocks() || r.Samples != d.NumSamples() {
				t.Fatalf("deep %v: %+v", deep, r)
			}
		}
	})
}
