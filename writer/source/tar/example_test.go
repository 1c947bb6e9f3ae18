package tar_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	shardtar "github.com/shardtool/shardtool/writer/source/tar"
)

// Packing an archive of WebDataset.
func ExampleNew() {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"0001.jpg", "0001.txt", "0002.jpg", "0002.txt"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name))}); err != nil {
			log.Fatal(err)
		}
		if _, err := w.Write([]byte(name)); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	ctx, from := context.Background(), mem.New()
	if _, err := objstore.Put(ctx, from, "train-000000.tar", archive.Bytes(), objstore.Condition{}); err != nil {
		log.Fatal(err)
	}

	src, err := shardtar.New(ctx, []source.Input{{Store: from, Name: "train-000000.tar"}}, shardtar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	r, err := writer.Pack(ctx, mem.New(), src, writer.Options{Name: "train"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Samples, "samples")
	// Output: 2 samples
}
