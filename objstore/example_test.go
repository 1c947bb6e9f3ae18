package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// Objects are put whole, listed by prefix, and read in ranges.
func Example() {
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
	for _, name := range []string{"b/2", "a", "b/1"} {
		if _, err := objstore.Put(ctx, store, name, []byte("the bytes of "+name), objstore.Condition{}); err != nil {
			log.Fatal(err)
		}
	}
	for info, err := range store.List(ctx, "b/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name, info.Size)
	}
	object, err := store.Open(ctx, "b/1")
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	part := make([]byte, 5)
	if err := object.ReadAt(ctx, part, 4); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", part)
	_, err = store.Stat(ctx, "c")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// b/1 16
	// b/2 16
	// bytes
	// true
}

// Redact removes user information and queries from addresses in a text.
func ExampleRedact() {
	fmt.Println(objstore.Redact("get https://user:password@host/train/0?signature=secret: connection refused"))
	// Output:
	// get https://host/train/0: connection refused
}
