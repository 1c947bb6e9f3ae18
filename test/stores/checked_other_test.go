package stores_test

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/test/proxy"
)

// sendsParts uploads objects in parts over http, and reads them: the first part may be refused or
// answered without its CRC-32C, and is then sent with a SHA-256. It returns how many parts had
// none.
func sendsParts(t *testing.T, s *server) (unsigned int64) {
	t.Helper()
	var parts, bare atomic.Int64
	through, _ := s.faulty(t, proxy.Options{Before: func(_ int64, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") {
			parts.Add(1)
			if r.Header.Get("x-amz-content-sha256") == "UNSIGNED-PAYLOAD" {
				bare.Add(1)
			}
		}
	}})
	store := through.open(t, s.bucket(t), "parts", s3store.Options{UploadPartSize: 5 << 20})
	for i, size := range []int{5<<20 + 1, 10 << 20, 16 << 20} {
		name, data := string(rune('a'+i)), pattern(uint64(i), size)
		if _, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{}); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		got, _, err := objstore.ReadAll(t.Context(), store, name, int64(size))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes in parts: %d came back, %v", size, len(got), err)
		}
	}
	t.Logf("%d of %d parts had no SHA-256", bare.Load(), parts.Load())
	if parts.Load() < 8 {
		t.Errorf("%d parts were sent", parts.Load())
	}
	return bare.Load()
}

// TestServersTakeParts uploads in parts to the server of the other tests, which verifies CRC-32C.
func TestServersTakeParts(t *testing.T) {
	s, _ := versity(t)
	if n := sendsParts(t, s); n != 8 {
		t.Errorf("%d parts had no SHA-256, want all 8", n)
	}
}
