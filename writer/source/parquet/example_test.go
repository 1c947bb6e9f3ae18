package parquet_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// Packing the rows of a file; the column label becomes an attribute, by which samples can be
// chosen.
func ExampleNew() {
	ctx := context.Background()
	in, err := source.LocalInput("../../../testdata/parquet/images.parquet")
	if err != nil {
		log.Fatal(err)
	}
	src, err := parquet.New(ctx, []source.Input{in}, parquet.Options{Attrs: map[string]string{"label": "label"}})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	r, err := writer.Pack(ctx, mem.New(), src, writer.Options{Name: "images"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Samples, "samples")
	// Output: 60 samples
}
