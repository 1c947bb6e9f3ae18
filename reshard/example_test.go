package reshard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// Packing the samples of a data set that fulfil a condition into another one.
func ExampleNew() {
	ctx, from := context.Background(), mem.New()
	w, err := writer.New(ctx, from, writer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 10 {
		err := w.Write(ctx, writer.Sample{
			Key:    fmt.Sprint(i),
			Fields: []writer.Field{{Name: "txt", Data: []byte("a document")}},
			Attrs:  []format.AttrValue{{Attribute: format.Attribute{Name: "score", Kind: format.AttrInteger}, Integer: int64(i)}},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}

	d, err := reader.Open(ctx, from, reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	src, err := reshard.New(ctx, []*reader.Dataset{d}, reshard.Options{Where: []string{"score >= 7"}})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	r, err := writer.Pack(ctx, mem.New(), src, writer.Options{Name: "best"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Samples, "samples")
	// Output: 3 samples
}
