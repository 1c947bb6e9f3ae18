package writer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestLastProgress: the last report counts every stored byte, those of the last shard's index too,
// which is written beside the blocks of the next one.
func TestLastProgress(t *testing.T) {
	for _, plain := range []bool{false, true} {
		store := mem.New()
		var last writer.Progress
		opt := writer.Options{Plain: plain, SamplesPerShard: 7, Progress: func(p writer.Progress) {
			if p.StoredBytes < last.StoredBytes || p.Shards < last.Shards {
				t.Errorf("%+v after %+v", p, last)
			}
			last = p
		}}
		w, err := writer.New(t.Context(), store, opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			s := writer.Sample{Key: "k" + strings.Repeat("a", i), Fields: []writer.Field{{Name: "x", Data: make([]byte, i)}}}
			if err := w.Write(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var stored int64
		for info, err := range store.List(context.Background(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(info.Name, ".tar") {
				stored += info.Size
			}
		}
		if last.Samples != 50 || last.Shards != 8 || last.StoredBytes != stored {
			t.Errorf("plain %v: %+v, but the shards have %d bytes", plain, last, stored)
		}
	}
}
