package ingest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// A folder of Parquet files, of whose rows two columns are taken, becomes a data set.
func Example() {
	ctx, store := context.Background(), mem.New()
	in, err := ingest.Open(ctx, []string{"../testdata/inputs/hubclone"}, ingest.Options{
		Rows: ingest.Rows{Key: "id", Columns: []string{"text"}},
		Note: func(text string) { fmt.Println("found", text) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	res, err := writer.Pack(ctx, store, in.Source, writer.Options{Layout: in.Layout})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(in.Kind+":", res.Samples, "samples")
	// Output:
	// found Parquet files in ../testdata/inputs/hubclone; left out: 1 side file (README.md)
	// found 3 rows in 1 Parquet file, 179 B of columns
	// Parquet files: 3 samples
}
