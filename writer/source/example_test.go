package source_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// Files that share a path up to the first dot are one sample.
func ExampleNewFiles() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	for _, name := range []string{"cat/1.jpg", "cat/1.json", "dog/2.jpg"} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	files, err := source.NewFiles(ctx, []string{folder}, source.FilesOptions{ClassField: "cls"})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	r, err := writer.Pack(ctx, mem.New(), files, writer.Options{Name: "pets"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d samples, classes %s\n", r.Samples, files.Meta()["classes"])
	// Output: 2 samples, classes ["cat","dog"]
}
