package stores_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/address"
	"github.com/shardtool/shardtool/objstore/local"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// packFiles packs some small files into a store.
func packFiles(t *testing.T, store objstore.Store) {
	t.Helper()
	raw := t.TempDir()
	for i := range 40 {
		if err := os.WriteFile(filepath.Join(raw, string(rune('a'+i%26))+string(rune('a'+i/26))+".bin"), pattern(uint64(i), 5000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, err := source.NewFiles(t.Context(), []string{raw}, source.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := writer.Pack(t.Context(), store, src, writer.Options{BlockSize: 16 << 10, ShardSize: 64 << 10, Workers: 2}); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyWithoutRanges checks that a server that ignores Range is reported as the fault, and not
// the data set, which nobody has to restore.
func TestVerifyWithoutRanges(t *testing.T) {
	for name, without := range map[string]func(t *testing.T) objstore.Store{
		"S3": func(t *testing.T) objstore.Store {
			s, _ := versity(t)
			bucket := s.bucket(t)
			packFiles(t, s.open(t, bucket, "packed", s3store.Options{}))
			through, _ := s.faulty(t, proxy.Options{Match: isGet, IgnoreRange: true, Signer: s.keys(), Region: s.region})
			return through.open(t, bucket, "packed", s3store.Options{})
		},
		"HTTP": func(t *testing.T) objstore.Store {
			dir := t.TempDir()
			packed, err := local.New(dir, local.Options{})
			if err != nil {
				t.Fatal(err)
			}
			packFiles(t, packed)
			files := http.FileServer(http.Dir(dir))
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Range")
				files.ServeHTTP(w, r)
			}))
			t.Cleanup(h.Close)
			store, err := address.Open(t.Context(), h.URL, address.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	} {
		for _, deep := range []bool{false, true} {
			report, err := check.Verify(t.Context(), without(t), check.Options{Deep: deep})
			if !errors.Is(err, objstore.ErrNoRanges) || report != nil && !report.OK() {
				t.Errorf("%s, deep %v: %v, %+v", name, deep, err, report)
			}
		}
	}
}
