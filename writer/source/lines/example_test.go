package lines_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/lines"
)

// Packing rows of JSON Lines that fulfil a condition.
func ExampleNew() {
	ctx, from := context.Background(), mem.New()
	text := []byte(`{"text": "one", "lang": "en"}
{"text": "deux", "lang": "fr"}
{"text": "three", "lang": "en"}
`)
	if _, err := objstore.Put(ctx, from, "text.jsonl", text, objstore.Condition{}); err != nil {
		log.Fatal(err)
	}
	src, err := lines.New(ctx, []source.Input{{Store: from, Name: "text.jsonl"}}, lines.Options{
		Columns: []string{"text"},
		Attrs:   map[string]string{"lang": "lang"},
		Where:   []string{"lang = en"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	r, err := writer.Pack(ctx, mem.New(), src, writer.Options{Name: "text"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Samples, "samples")
	// Output: 2 samples
}
