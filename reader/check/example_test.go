package check_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/writer"
)

// Verifying every byte of a data set, whole and after a disk has flipped a bit.
func ExampleVerify() {
	ctx, store := context.Background(), mem.New()
	w, err := writer.New(ctx, store, writer.Options{Name: "train"})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort()
	for i := range 100 {
		if err := w.Write(ctx, writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "txt", Data: []byte("text")}}}); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	verify := func() {
		r, err := check.Verify(ctx, store, check.Options{Deep: true})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("whole:", r.OK())
		for _, f := range r.Faults {
			fmt.Printf("%s: block %d: %s\n", f.Shard, f.Block, f.Kind)
		}
	}
	verify()

	const shard = "train-000000.tar.zst"
	data, _, err := objstore.ReadAll(ctx, store, shard, 1<<30)
	if err != nil {
		log.Fatal(err)
	}
	broken := append([]byte(nil), data...)
	broken[100] ^= 1
	if _, err := objstore.Put(ctx, store, shard, broken, objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	verify()
	// Output:
	// whole: true
	// whole: false
	// train-000000.tar.zst: block 0: checksum
}
