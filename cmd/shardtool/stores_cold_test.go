package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// TestColdStart reads a data set in each kind of store without the right to list. The requests up
// to the first batch are one for each of the manifest, the tables (manifest-…) and the block; on
// the Hub each of them is redirected once.
func TestColdStart(t *testing.T) {
	dir := t.TempDir()
	store, err := address.Open(t.Context(), dir, address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(t.Context(), store, writer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range 8 {
		if err := w.Write(t.Context(), writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "txt", Data: []byte("text")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var asked []string
	// seen records a request, and refuses lists.
	seen := func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		name := path.Base(r.URL.Path)
		q := r.URL.Query()
		if q.Has("list-type") || q.Get("comp") == "list" || name == "o" || strings.Contains(r.URL.Path, "/tree/") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		if strings.Contains(r.URL.Path, "/xet-bridge-us/") {
			name = "bytes"
		}
		name, _, _ = strings.Cut(name, "-")
		if strings.Contains(r.URL.Path, "/resolve-cache/") {
			name = "cached " + name
		}
		asked = append(asked, r.Method+" "+name)
		return false
	}
	google, azure := gsserver.New(t), azserver.New(t)
	google.SetHook(seen)
	azure.SetHook(seen)
	azure.Private = ""
	files, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := "set/" + filepath.Base(file)
		google.Objects[name] = &gsserver.Stored{Data: data, Generation: int64(i + 1), At: time.Now()}
		azure.Objects[name] = &azserver.Stored{Data: data, ETag: fmt.Sprint("0x", i), At: time.Now(), Type: "BlockBlob"}
	}
	hub := hubserver.New(t, map[string]*hubserver.Set{"org/set": published(t, dir)})
	hub.Hook = func(w http.ResponseWriter, r *http.Request, _ bool) bool { return seen(w, r) }
	amazon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, err := os.ReadFile(filepath.Join(dir, path.Base(r.URL.Path))); !seen(w, r) && err == nil {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}
	}))
	defer amazon.Close()

	want := []string{"GET manifest.json", "GET manifest", "GET data"}
	for addr, want := range map[string][]string{
		"s3://bucket/set?anonymous=true&endpoint=" + amazon.URL:  want,
		"gs://bucket/set?anonymous=true&endpoint=" + google.URL:  want,
		"az://acct/box/set?anonymous=true&endpoint=" + azure.URL: want,
		"hf://datasets/org/set/data": {
			"GET manifest.json", "GET cached manifest.json", "GET manifest", "GET cached manifest", "GET data", "GET bytes",
		},
	} {
		asked = nil
		store, err := address.Open(t.Context(), addr, address.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := reader.Open(t.Context(), store, reader.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s, err := d.Stream(t.Context(), reader.StreamOptions{Shuffle: true, Seed: 7, Epochs: 1, GlobalBatch: 8, World: 1, Tail: order.TailShort})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if batch, err := s.Next(t.Context()); err != nil || len(batch.Samples) != 8 {
			t.Errorf("%s: %v, %v", addr, batch, err)
		}
		mu.Lock()
		if !slices.Equal(asked, want) {
			t.Errorf("%s: asked for %q, want %q", addr, asked, want)
		}
		mu.Unlock()
		for _, err := range store.List(t.Context(), "") {
			if err == nil {
				t.Errorf("%s was listed", addr)
			}
		}
	}
}
