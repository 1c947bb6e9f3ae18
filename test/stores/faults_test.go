package stores_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
)

// pattern returns pseudo-random bytes.
func pattern(seed uint64, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(data)
	return data
}

func isGet(r *http.Request) bool { return r.Method == http.MethodGet }

// keys returns the credentials that a proxy signs with.
func (s *server) keys() credentials.StaticCredentialsProvider {
	return credentials.NewStaticCredentialsProvider(s.access, s.secret, s.token)
}

// TestCutShort replaces the object by its own beginning, under an open handle and before Open.
func TestCutShort(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	store := s.open(t, bucket, "", s3store.Options{})
	data := pattern(8, 300_000)
	put := func(data []byte) {
		t.Helper()
		if _, err := objstore.Put(t.Context(), store, "object", data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put(data)
	object, err := store.Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if err := object.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
		t.Fatal(err)
	}
	put(data[:200_000])
	for _, off := range []int64{100_000, 199_990, 250_000} {
		if err := object.ReadAt(t.Context(), make([]byte, 20), off); !errors.Is(err, objstore.ErrChanged) {
			t.Errorf("a read at %d of an object cut short: %v", off, err)
		}
	}
	fresh, err := store.Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	err = fresh.ReadAt(t.Context(), make([]byte, 20), 199_990)
	wantText(t, s, err, "object", "unexpected EOF")
}
