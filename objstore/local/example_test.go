package local_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// An object is replaced only if it is still the one that was seen.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "objects")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := local.New(dir, local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	seen, err := objstore.Put(ctx, store, "state", []byte("1"), objstore.Condition{})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"2", "3"} {
		_, err := objstore.Put(ctx, store, "state", []byte(text), objstore.Condition{IfMatch: seen.ETag})
		fmt.Println(text, errors.Is(err, objstore.ErrChanged))
	}
	data, _, err := objstore.ReadAll(ctx, store, "state", 1<<10)
	fmt.Println(string(data), err)
	// Output:
	// 2 false
	// 3 true
	// 2 <nil>
}
