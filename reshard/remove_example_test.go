package reshard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

func ExampleRemoveKeys() {
	ctx, store := context.Background(), mem.New()
	w, err := writer.New(ctx, store, writer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"alice", "bob", "carol"} {
		if err := w.Write(ctx, writer.Sample{Key: key, Fields: []writer.Field{{Name: "txt", Data: []byte(key)}}}); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := reshard.RemoveKeys(ctx, store, []string{"bob"}, reshard.RemoveOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d samples are removed\n", r.Removed, r.Total)
	p, err := writer.Purge(ctx, store, writer.PurgeOptions{Generations: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q is gone from %s; generations that hold it: %d\n", p.Samples[0].Key, p.Shards[0].Before.Name, len(p.Holding))
	// Output:
	// 1 of 3 samples are removed
	// "bob" is gone from data-000000.tar.zst; generations that hold it: 0
}
