package writer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// Packing samples one by one. Nothing is visible to readers before Close.
func Example() {
	ctx := context.Background()
	w, err := writer.New(ctx, mem.New(), writer.Options{Name: "train"})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Close
	for i := range 1000 {
		err := w.Write(ctx, writer.Sample{
			Key:    fmt.Sprintf("text/%04d", i),
			Fields: []writer.Field{{Name: "txt", Data: fmt.Appendf(nil, "document %d", i)}},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	r, err := w.Close(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("generation %d: %d samples in %d shard\n", r.Generation, r.Samples, r.Shards)
	// Output: generation 1: 1000 samples in 1 shard
}
