package cache_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/objstore/local"
)

// The second read of a range is served from the cache.
func Example() {
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	source, err := local.New(filepath.Join(dir, "source"), local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := objstore.Put(ctx, source, "shard", make([]byte, 1<<20), objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	c, err := cache.New(filepath.Join(dir, "cache"), cache.Options{Size: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	object, err := c.Wrap(source).Open(ctx, "shard")
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	for range 3 {
		if err := object.ReadAt(ctx, make([]byte, 1000), 4096); err != nil {
			log.Fatal(err)
		}
	}
	s := c.Stats()
	fmt.Println(s.Misses, "read from the source,", s.Hits, "from the cache")
	// Output:
	// 1 read from the source, 2 from the cache
}
