package export_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/export"
	"github.com/shardtool/shardtool/writer"
)

// A data set as plain tar archives, with the index that wids reads.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "export")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := local.New(filepath.Join(dir, "train"), local.Options{})
	if err != nil {
		log.Fatal(err)
	}
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
	data, err := reader.Open(ctx, store, reader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer data.Close()
	to, err := local.New(filepath.Join(dir, "tars"), local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	result, err := export.Run(ctx, data, to, export.Options{Form: export.WIDS})
	if err != nil {
		log.Fatal(err)
	}
	for info, err := range to.List(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name)
	}
	fmt.Println(result.Samples, "samples")
	// Output:
	// .export-wids.json
	// train-000000.tar
	// wids.json
	// 100 samples
}
