package s3_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
)

// Objects of a public bucket are read without credentials, here from a server other than AWS.
func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(r.URL.Path))
	}))
	defer server.Close()
	ctx := context.Background()
	store, err := s3.New(ctx, "bucket", "train", s3.Options{Endpoint: server.URL, Region: "us-east-1", Anonymous: true})
	if err != nil {
		log.Fatal(err)
	}
	data, info, err := objstore.ReadAll(ctx, store, "classes.txt", 1<<10)
	fmt.Println(store, info.Size, string(data), err)
	// Output: s3://bucket/train 25 /bucket/train/classes.txt <nil>
}
