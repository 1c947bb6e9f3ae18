package mem_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// A clone is the state of a store after a crash at that moment.
func ExampleStore_Clone() {
	ctx, store := context.Background(), mem.New()
	if _, err := objstore.Put(ctx, store, "before", []byte("1"), objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	crashed := store.Clone()
	if _, err := objstore.Put(ctx, store, "after", []byte("2"), objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	for info, err := range crashed.List(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name)
	}
	// Output: before
}
