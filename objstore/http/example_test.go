package httpstore_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing/fstest"
	"time"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
)

// Any web server that serves ranges is a store.
func ExampleNew() {
	files := fstest.MapFS{"train/manifest.json": {Data: []byte("{}"), ModTime: time.Unix(1e9, 0)}}
	server := httptest.NewServer(http.FileServerFS(files))
	defer server.Close()
	store, err := httpstore.New(server.URL+"/train", httpstore.Options{ReadOptions: objstore.ReadOptions{Concurrency: 8}})
	if err != nil {
		log.Fatal(err)
	}
	data, info, err := objstore.ReadAll(context.Background(), store, "manifest.json", 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data), info.Size)
	// Output:
	// {} 2
}
