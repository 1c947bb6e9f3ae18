package s3_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore/s3"
)

// BenchmarkRead reads 8 MiB ranges, 16 at once, through the store and through a bare client, from a
// server in this process that only writes them.
func BenchmarkRead(b *testing.B) {
	const size, part, workers = 256 << 20, 8 << 20, 16
	data := make([]byte, part)
	serve := func(w http.ResponseWriter, r *http.Request) {
		var first, last int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
			http.Error(w, "no range", http.StatusBadRequest)
			return
		}
		w.Header().Set("ETag", `"fixed"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, int64(size)))
		w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data[:last-first+1])
	}
	s := httptest.NewServer(http.HandlerFunc(serve))
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	store, err := s3.New(b.Context(), "bucket", "", s3.Options{Endpoint: s.URL, HTTPClient: client})
	if err != nil {
		b.Fatal(err)
	}
	object, err := store.Open(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	defer object.Close()
	run := func(b *testing.B, read func(p []byte, off int64) error) {
		b.SetBytes(size)
		b.ReportAllocs()
		buffers := make([][]byte, workers)
		for i := range buffers {
			buffers[i] = make([]byte, part)
		}
		for b.Loop() {
			var group sync.WaitGroup
			for i, p := range buffers {
				group.Go(func() {
					for off := int64(i * part); off < size; off += workers * part {
						if err := read(p, off); err != nil {
							b.Error(err)
						}
					}
				})
			}
			group.Wait()
		}
	}
	b.Run("client=store", func(b *testing.B) {
		run(b, func(p []byte, off int64) error { return object.ReadAt(b.Context(), p, off) })
	})
	b.Run("client=bare", func(b *testing.B) {
		run(b, func(p []byte, off int64) error {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.URL+"/bucket/a", nil)
			if err != nil {
				return err
			}
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1))
			answer, err := client.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.ReadFull(answer.Body, p)
			return err
		})
	})
}
