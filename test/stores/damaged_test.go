package stores_test

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/proxy"
)

// flippedBody flips one bit of what is read, at an offset.
type flippedBody struct {
	io.ReadCloser
	left int // bytes before it; negative after it
}

func (f *flippedBody) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.left >= 0 && f.left < n {
		p[f.left] ^= 1
	}
	f.left -= n
	return n, err
}

// TestDamagedParts damages a part on its way to the server, which finds that by the part's CRC-32C:
// the part is sent again, and the object is whole. The other parts arrive without a SHA-256.
func TestDamagedParts(t *testing.T) {
	s, _ := versity(t)
	var damaged, unsigned atomic.Int64
	isPart := func(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Query().Has("partNumber") }
	through, _ := s.faulty(t, proxy.Options{Before: func(_ int64, r *http.Request) {
		if !isPart(r) {
			return
		}
		if r.Header.Get("x-amz-content-sha256") == "UNSIGNED-PAYLOAD" {
			unsigned.Add(1)
		}
		if r.URL.Query().Get("partNumber") == "2" && damaged.Add(1) == 1 {
			r.Body = &flippedBody{r.Body, 1000}
		}
	}})
	store := through.open(t, s.bucket(t), "", s3store.Options{UploadPartSize: 5 << 20, UploadConcurrency: 1})
	data := pattern(5, 16<<20)
	if _, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{IfNoneMatch: true}); err != nil {
		t.Fatal(err)
	}
	got, _, err := objstore.ReadAll(t.Context(), store, "a", int64(len(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("other bytes: %v", err)
	}
	if damaged.Load() != 2 || unsigned.Load() != 2 {
		t.Errorf("part 2 was sent %d times, and %d parts without a SHA-256; want 2 and 2", damaged.Load(), unsigned.Load())
	}
}
